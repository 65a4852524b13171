"""Owns the ranked table of a sweep: speed with its interval, who is tied with the best, who has lost already."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

# Student's t for a two-sided 95 % interval, by degrees of freedom; beyond the last, the normal's 1.96.
_T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131,
        2.12, 2.11, 2.101, 2.093, 2.086)  # fmt: skip
LEAST_STEPS = 5  # of a task before it may be judged a loser


@dataclass(frozen=True, slots=True)
class Measured:
    """What one task's log says so far: steady steps, their mean time and its standard deviation, in ms."""

    steps: int = 0
    mean_ms: float | None = None
    stdev_ms: float | None = None
    model_tflops: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One task of the table. low_ms, high_ms bound the mean step time at 95 %.

    tokens_per_step: to compare batches of different size; None compares step times.
    """

    number: int
    values: Mapping[str, str]
    state: str
    run_id: str | None = None
    job_id: str | None = None
    gpus: int = 0
    steps: int = 0
    step_time_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    model_tflops: float | None = None
    predicted_step_time_ms: float | None = None
    tokens_per_step: int | None = None
    problem: str = ""
    rank: int | None = None
    tied: bool = False

    @property
    def cost(self) -> float | None:
        """What is ranked: seconds of a GPU per token (or per step); less is better."""
        return self._cost(self.step_time_ms)

    @property
    def cost_low(self) -> float | None:
        return self._cost(self.low_ms)

    @property
    def cost_high(self) -> float | None:
        return self._cost(self.high_ms)

    def _cost(self, ms: float | None) -> float | None:
        return None if ms is None else ms * max(1, self.gpus) / (self.tokens_per_step or 1)

    @property
    def tokens_per_second_per_gpu(self) -> float | None:
        if self.step_time_ms is None or not self.tokens_per_step:
            return None
        return 1000 * self.tokens_per_step / self.step_time_ms / max(1, self.gpus)

    def to_json(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "tied": self.tied,
            "task": self.number,
            "values": dict(self.values),
            "run_id": self.run_id,
            "job_id": self.job_id,
            "state": self.state,
            "gpus": self.gpus,
            "steps": self.steps,
            "step_time_ms": self.step_time_ms,
            "low_ms": self.low_ms,
            "high_ms": self.high_ms,
            "tokens_per_second_per_gpu": self.tokens_per_second_per_gpu,
            "model_tflops": self.model_tflops,
            "predicted_step_time_ms": self.predicted_step_time_ms,
            "problem": self.problem or None,
        }


def with_interval(row: Row, measured: Measured) -> Row:
    """A row with what was measured and its interval; an interval needs two steps."""
    row = replace(
        row, steps=measured.steps, step_time_ms=measured.mean_ms, model_tflops=measured.model_tflops
    )
    if measured.mean_ms is None or measured.stdev_ms is None or measured.steps < 2:
        return row
    half = t95(measured.steps - 1) * measured.stdev_ms / math.sqrt(measured.steps)
    return replace(row, low_ms=max(0.0, measured.mean_ms - half), high_ms=measured.mean_ms + half)


def t95(freedom: int) -> float:
    """Student's t for a two-sided 95 % interval."""
    return _T95[freedom - 1] if freedom <= len(_T95) else 1.96 + 2.4 / freedom


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Best first, what was not measured last. tied: its interval reaches into the best one's."""
    measured = sorted((r for r in rows if r.cost is not None), key=lambda r: r.cost or 0.0)
    rest = sorted((r for r in rows if r.cost is None), key=lambda r: r.number)
    found: list[Row] = []
    for rank, row in enumerate(measured, 1):
        best = measured[0]
        tied = rank > 1 and _reach(row, best)
        found.append(replace(row, rank=rank, tied=tied))
    if any(r.tied for r in found):
        found[0] = replace(found[0], tied=True)
    return [*found, *rest]


def _reach(row: Row, best: Row) -> bool:
    """Whether the two cannot be told apart. Without intervals: only equal ones cannot."""
    if row.cost_low is None or best.cost_high is None:
        return row.cost == best.cost
    return row.cost_low <= best.cost_high


def losers(rows: Sequence[Row]) -> list[Row]:
    """Running tasks that are surely slower than the best: stopping them loses no answer."""
    known = [r for r in rows if r.cost_high is not None and r.steps >= LEAST_STEPS]
    if len(known) < 2:
        return []
    best = min(r.cost_high for r in known if r.cost_high is not None)
    return [r for r in known if r.state == "RUNNING" and r.cost_low is not None and r.cost_low > best]
