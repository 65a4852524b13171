"""Owns reading Slurm's notation of a time limit, and how early a job is warned of its end."""

from __future__ import annotations

import re

from gpt_tune.errors import UserError

_NOTATIONS = (
    re.compile(r"(?P<m>\d+)"),
    re.compile(r"(?P<m>\d+):(?P<s>\d+)"),
    re.compile(r"(?P<h>\d+):(?P<m>\d+):(?P<s>\d+)"),
    re.compile(r"(?P<d>\d+)-(?P<h>\d+)(?::(?P<m>\d+))?(?::(?P<s>\d+))?"),
)
_UNLIMITED = ("unlimited", "infinite")
_LEAST_WARNING, _MOST_WARNING = 60, 600


def seconds(limit: str) -> int | None:
    """A time limit in seconds; None when empty or unlimited. UserError when it is none of Slurm's notations."""
    text = limit.strip().lower()
    if not text or text in _UNLIMITED:
        return None
    for notation in _NOTATIONS:
        match = notation.fullmatch(text)
        if match:
            parts = {k: int(v or 0) for k, v in match.groupdict().items()}
            total = (
                86400 * parts.get("d", 0)
                + 3600 * parts.get("h", 0)
                + 60 * parts.get("m", 0)
                + parts.get("s", 0)
            )
            if total > 0:
                return total
    raise UserError(
        f"The time limit {limit[:40]!r} is not in Slurm's notation.",
        "Write minutes (90), hours:minutes:seconds (1:30:00) or days-hours (2-12).",
    )


def warning_seconds(limit: str) -> int:
    """How long before the limit a job is told to save: 5 % of it, one to ten minutes, never above a quarter."""
    total = seconds(limit)
    if total is None:
        return 2 * _LEAST_WARNING
    return max(1, min(total // 4, max(_LEAST_WARNING, min(_MOST_WARNING, total // 20))))
