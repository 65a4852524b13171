#!/bin/sh
# Makes .venv from a lock file and installs gpt-tune into it, editable. Usage: setup.sh LOCKFILE
set -eu
cd "$(dirname "$0")/.."
lock=$1
# Hash checking refuses every package the lock file does not list, so the build tool is in it too.
if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c 'import pip' 2>/dev/null; then
  python=$(sh scripts/find-python.sh)
  echo "Setting up .venv with $("$python" --version) (once, about a minute)..." >&2
  rm -rf .venv
  "$python" -m venv .venv
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
.venv/bin/python -m compileall -q gpt_tune tui
