"""Owns the by-hand tool: `python -m tests.cluster shell | start DIR | stop DIR`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cluster import private

_USAGE = "usage: python -m tests.cluster shell | start DIR | stop DIR"


def main(argv: list[str]) -> int:
    match argv:
        case ["shell"]:
            return _shell()
        case ["start", folder]:
            return _start(Path(folder))
        case ["stop", folder]:
            private.stop_folder(Path(folder).absolute())
            return 0
        case ["guard", folder]:
            sys.stdin.buffer.read()  # ends when the owner does
            private.stop_folder(Path(folder))
            return 0
    print(_USAGE, file=sys.stderr)
    return 2


def _unable() -> bool:
    reason = private.missing_reason()
    if reason:
        print(reason, file=sys.stderr)
    return reason is not None


def _start(folder: Path) -> int:
    if _unable():
        return 3
    try:
        cluster = private.start(folder, owned=False)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 3
    print(f"export SLURM_CONF={cluster.conf}")
    return 0


def _shell() -> int:
    """A shell on a cluster that ends with the shell."""
    if _unable():
        return 3
    cluster = private.start()
    print(f"Slurm cluster 'testbed' is up (SLURM_CONF={cluster.conf}). Leave with `exit`.", file=sys.stderr)
    try:
        return subprocess.run([os.environ.get("SHELL", "/bin/bash")], env=cluster.env, check=False).returncode
    finally:
        cluster.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
