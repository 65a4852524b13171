"""Owns the time stamps of runs."""

from __future__ import annotations

import time

from gpt_tune.schedulers import slurm_words


def now() -> str:
    """This moment, RFC 3339 UTC."""
    return slurm_words.rfc3339(epoch())


def epoch() -> float:
    """This moment, seconds since 1970."""
    return time.time()


def age_seconds(stamp: str | None) -> float | None:
    """Seconds since a time stamp, never negative; None without one."""
    return None if stamp is None else max(0.0, time.time() - slurm_words.epoch(stamp))
