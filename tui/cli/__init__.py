"""Owns the entry point. It imports nothing heavy: `gpt-tune --version` must answer at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in (["--version"], ["-V"]):
        from gpt_tune import __version__

        try:
            print(f"gpt-tune {__version__}")
            if sys.stdout is not None:
                sys.stdout.flush()
                return 0
        except OSError:
            pass  # said below
    from tui.cli.run import run

    return run(given)
