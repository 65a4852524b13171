"""Owns who asks the user when a login node wants a password or second factor."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

# Runs this ssh command with the terminal and gives its exit code. A face sets it while it can hand over the
# terminal; None means that nobody can be asked, and the error says what to run instead.
handler: Callable[[list[str]], int] | None = None


def in_terminal(argv: list[str]) -> int:
    """Let ssh ask in the terminal this process has."""
    try:
        return subprocess.call(argv)
    except OSError:
        return 255
