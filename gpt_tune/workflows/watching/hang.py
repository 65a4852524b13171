"""Owns deciding that a run hangs: no new step for far longer than a step takes."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_tune.logs.types import Step

STEPS_OF_SILENCE = 10.0
LEAST_SECONDS = 600.0
_MOVING = frozenset({"RUNNING", "UNKNOWN"})


@dataclass(frozen=True, slots=True)
class Hang:
    """No new step for silent_seconds; that is called a hang from limit_seconds on.

    silent_ranks: those that wrote nothing since, where some did: look there first.
    """

    silent_seconds: float
    limit_seconds: float
    last_iteration: int | None
    text: str
    silent_ranks: tuple[int, ...] = ()


def silence_limit(median_step_time_ms: float | None) -> float:
    """Seconds without a step that still are normal: 10 steps, and never under 10 minutes."""
    return max(LEAST_SECONDS, STEPS_OF_SILENCE * (median_step_time_ms or 0.0) / 1000.0)


def judge_hang(
    state: str,
    last: Step | None,
    median_step_time_ms: float | None,
    moved_at: float,
    now: float,
    silent_ranks: tuple[int, ...] = (),
) -> Hang | None:
    """Whether the run hangs. moved_at: when the last step came, or when the start-up was first looked at.

    Only a running job can hang (or one whose state nobody knows, once it has printed steps). Lines that are
    not steps do not count: heartbeats go on printing through a hang.
    """
    if state not in _MOVING or (state == "UNKNOWN" and last is None):
        return None
    if last is not None and last.total_iterations is not None and last.iteration >= last.total_iterations:
        return None
    silent, limit = now - moved_at, silence_limit(median_step_time_ms)
    if silent < limit:
        return None
    if last is None:
        text = f"No step yet after {_minutes(silent)}."
    else:
        text = f"No step since iteration {last.iteration}, {_minutes(silent)} ago (normal: under {_minutes(limit)})."
    if silent_ranks:
        shown = ", ".join(map(str, silent_ranks[:8])) + (" ..." if len(silent_ranks) > 8 else "")
        text = f"{text} Ranks that say nothing since: {shown}."
    return Hang(silent, limit, last.iteration if last is not None else None, text, silent_ranks)


def _minutes(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
