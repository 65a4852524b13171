"""Owns the colours and short words of job states, and of points in time. The engine says what they mean."""

from __future__ import annotations

from datetime import datetime, timezone

from gpt_tune.words import seconds_words
from tui.widgets.paint import Line

_ROLES = {
    "RUNNING": "good",
    "COMPLETING": "good",
    "COMPLETED": "good",
    "PENDING": "warn",
    "SUSPENDED": "warn",
    "CANCELLED": "warn",
    "PREEMPTED": "warn",
    "UNKNOWN": "muted",
}


def state_role(state: str) -> str:
    """The role a state is painted in; whatever is not listed has gone wrong."""
    return _ROLES.get(state, "bad")


def state_cell(state: str) -> Line:
    return [(state, state_role(state))]


def seconds_since(stamp: str | None, now: datetime | None = None) -> float | None:
    """Seconds between an RFC 3339 time and now."""
    if not stamp:
        return None
    then = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    return ((now or datetime.now(timezone.utc)) - then).total_seconds()


_LONG_AGO = 60 * 24 * 3600.0  # a date says more than a number of days from here on


def ago(stamp: str | None) -> str:
    """`5 min ago`, the date where that is long past, or an empty text."""
    seconds = seconds_since(stamp)
    if stamp is None or seconds is None:
        return ""
    if seconds > _LONG_AGO:
        return stamp[:10]
    return "now" if seconds < 2 else f"{_coarse(seconds)} ago"


def _coarse(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 60
        else seconds_words(seconds).split(" ", 2)[0]
        + " "
        + ("min" if seconds < 3570 else "h" if seconds < 48 * 3600 - 30 else "d")
    )
