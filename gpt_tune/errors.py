"""Owns the one error type people see: a sentence that says what is wrong, and one that says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_DONE = 0
EXIT_FINDING = 1
EXIT_USAGE = 2
EXIT_SCHEDULER = 3
EXIT_BUG = 70
EXIT_INTERRUPTED = 130


class UserError(Exception):
    """Something the user (or the cluster) must put right.

    message: one sentence with the names and numbers involved.
    hint: what to do about it, or "".
    exit_code: the process exit code a command line uses for it.
    """

    exit_code = EXIT_USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class SchedulerError(UserError):
    """The scheduler refused a request or cannot be reached."""

    exit_code = EXIT_SCHEDULER


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The known name most like `name`, or None when nothing is close."""
    by_lower = {k.lower(): k for k in known}
    matches = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[matches[0]] if matches else None


def shown(text: str, most: int = 60) -> str:
    """A user's word in quotes for a message, cut where it is too long to read."""
    return repr(text) if len(text) <= most else f"{text[: most // 2] + '…'!r} ({len(text)} characters)"


def check_given(text: str, what: str) -> None:
    """UserError for an empty word, as an unset variable of a shell script leaves it."""
    if not text.strip():
        raise UserError(f"No name given: {what} is empty.", "An unset variable may be the reason.")


def unknown_name(kind: str, name: str, known: Iterable[str], where: str = "") -> UserError:
    """The error for a name that is not in a list, naming the nearest one."""
    names = sorted(known)
    close = nearest(name, names)
    hint = (
        f"Did you mean {close!r}?"
        if close
        else f"Known: {', '.join(names[:12])}" + (f" and {len(names) - 12} more." if len(names) > 12 else ".")
    )
    if not names:
        hint = "There is none."
    place = f" in {where}" if where else ""
    return UserError(f"Unknown {kind} {shown(name)}{place}.", hint)
