"""Owns what would be lost if a run ended now: the steps since its last checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpt_tune.logs.types import Event
from gpt_tune.words import gpu_hours_words, seconds_words


@dataclass(frozen=True, slots=True)
class Risk:
    """checkpoint: the iteration of the last one saved, None when the log names none. iterations: done since then (or
    since the start). gpu_hours: what these cost; None where it cannot be told, or without GPUs: then seconds says how
    long they took, where that is known."""

    checkpoint: int | None
    iterations: int
    gpu_hours: float | None
    seconds: float | None = None

    @property
    def words(self) -> str:
        """`12 steps since checkpoint 400 (0.8 GPU-hours)`."""
        if self.checkpoint is not None and not self.iterations:
            return f"nothing since checkpoint {self.checkpoint:,}"
        cost = f" ({gpu_hours_words(self.gpu_hours)})" if self.gpu_hours else ""
        if not cost and self.seconds:
            cost = f" ({seconds_words(self.seconds)})"
        steps = f"{self.iterations:,} step{'' if self.iterations == 1 else 's'}"
        since = "no checkpoint yet" if self.checkpoint is None else f"since checkpoint {self.checkpoint:,}"
        return f"{steps} {since}{cost}" if self.checkpoint is not None else f"{steps}{cost}, {since}"


def risk_of(
    events: Sequence[Event], iteration: int | None, step_ms: float | None, gpus: int | None
) -> Risk | None:
    """The risk of a run that has come to `iteration`; None before its first step."""
    if iteration is None:
        return None
    saved = [e.iteration for e in events if e.kind == "saved" and e.iteration is not None]
    # Checkpoints beyond the newest step belong to an earlier part of the log that was trained over again.
    last = next((i for i in reversed(saved) if i <= iteration), None)
    since = iteration - (last or 0)
    seconds = since * step_ms / 1000.0 if step_ms else None
    return Risk(last, since, seconds * gpus / 3600.0 if seconds is not None and gpus else None, seconds)
