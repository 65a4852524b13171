#!/bin/sh
# Prints the newest usable Python 3.10-3.13, or says what to install. Usable means: starts, and can make a venv.
set -u
for name in python3.13 python3.12 python3.11 python3.10 python3 python; do
  path=$(command -v "$name" 2>/dev/null) || continue
  "$path" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || continue
  printf '%s\n' "$path"
  exit 0
done
echo "gpt-tune needs Python 3.10 to 3.13 with the venv module (Debian and Ubuntu: apt-get install python3-venv)." >&2
exit 1
