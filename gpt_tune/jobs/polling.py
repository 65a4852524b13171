"""Owns how often a cluster is asked: a pure rule, so that gpt-tune is a good guest."""

from __future__ import annotations

from collections.abc import Collection

from gpt_tune.schedulers.base import ENDED

QUICK_SECONDS = 2.0  # also for jobs of this machine: looking at them costs nobody anything
QUICK_POLLS = 3  # at most so many after something the user did
# Requests of the controller, as sdiag counts them. squeue makes two each time (jobs and partitions); scontrol, asked
# for one job, makes one.
REQUESTS_A_MINUTE = 4
POLL_REQUESTS = 2
ONE_JOB_REQUESTS = 1
WINDOW_SECONDS = 60.0
TOLD_A_MINUTE = (
    REQUESTS_A_MINUTE - POLL_REQUESTS
)  # because a file told of a change; the rest is for the next poll
POLLS_A_MINUTE = REQUESTS_A_MINUTE // POLL_REQUESTS
FAST_SECONDS = 30.0  # while something changes
SLOW_SECONDS = 60.0  # while nothing has changed for a while, or where files tell sooner
HINT_SHARED_SECONDS = 5.0  # when a file told of a change, an answer older than this is not good enough
SETTLED_AFTER_SECONDS = 120.0
LONGEST_BACKOFF_SECONDS = 120.0


def refresh_interval(
    states: Collection[str],
    *,
    scheduler: str = "slurm",
    visible: bool = True,
    paused: bool = False,
    quick_left: int = 0,
    unchanged_seconds: float = 0.0,
    failures: int = 0,
    jitter: float = 0.5,
    files_tell: bool = False,
) -> float | None:
    """Seconds from the end of one poll to the next, None for no poll at all.

    states: of the runs on one cluster. scheduler: slurm or local. quick_left: quick polls still due after
    something the user did. failures: polls in a row without an answer. jitter: 0..1, random, so that many
    users do not come at once. files_tell: whether the runs' files are looked at, which tell of a beginning and an
    end before any poll; what is not asked for in vain is then there for them.
    """
    if paused or not visible or all(s in ENDED for s in states):
        return None
    if scheduler == "local":
        return QUICK_SECONDS
    if failures:
        base = min(FAST_SECONDS * 2.0 ** min(failures - 1, 10), LONGEST_BACKOFF_SECONDS)
        return base * (1 + 0.25 * jitter)
    if quick_left > 0:
        return QUICK_SECONDS
    changing = unchanged_seconds < SETTLED_AFTER_SECONDS and not files_tell
    return FAST_SECONDS if changing else SLOW_SECONDS


def shared_seconds(files_tell: bool) -> float:
    """Up to what age another gpt-tune's answer of this user is good enough for a scheduled poll."""
    return SLOW_SECONDS - HINT_SHARED_SECONDS if files_tell else FAST_SECONDS
