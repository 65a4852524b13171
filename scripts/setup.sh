#!/bin/sh
# Makes .venv from a lock file and installs gpt-tune into it, editable. Usage: setup.sh LOCKFILE
set -eu
cd "$(dirname "$0")/.."
lock=$1
say() { echo "setup: $*" >&2; }
# Hash checking refuses every package the lock file does not list, so the build tool is in it too.
if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c 'import pip' 2>/dev/null; then
  python=$(sh scripts/find-python.sh)
  say "making .venv with $("$python" --version) (once; one to two minutes in all)"
  rm -rf .venv
  "$python" -m venv .venv
fi
say "installing the $(grep -c '==' "$lock") packages of $lock (the longest part)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"
say "installing gpt-tune itself"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
say "compiling, so that the first start is quick"
.venv/bin/python -m compileall -q gpt_tune tui
say "done"
