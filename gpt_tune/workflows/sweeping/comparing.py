"""Owns comparing rungs in order: how much faster each is than the one before and the first, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpt_tune.workflows.sweeping.ranking import Row, t95


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """How many times faster than `over`. low, high: 95 % interval, None when a run is too short for one."""

    over: str
    ratio: float
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> str:
        """faster | slower | cannot tell: whether the interval leaves 1 out."""
        if self.low is None or self.high is None:
            return "cannot tell"
        return "faster" if self.low > 1 else "slower" if self.high < 1 else "cannot tell"

    def to_json(self) -> dict[str, Any]:
        return {
            "over": self.over, "ratio": self.ratio, "low": self.low, "high": self.high, "verdict": self.verdict,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compared:
    """One rung of the report. previous: against the last rung below it that was measured."""

    rung: str
    row: Row
    previous: SpeedUp | None
    base: SpeedUp | None

    def to_json(self) -> dict[str, Any]:
        return {
            "rung": self.rung,
            "task": self.row.number,
            "run_id": self.row.run_id,
            "state": self.row.state,
            "steps": self.row.steps,
            "step_time_ms": self.row.step_time_ms,
            "low_ms": self.row.low_ms,
            "high_ms": self.row.high_ms,
            "tokens_per_second_per_gpu": self.row.tokens_per_second_per_gpu,
            "over_previous": self.previous.to_json() if self.previous else None,
            "over_base": self.base.to_json() if self.base else None,
            "problem": self.row.problem or None,
        }


def compare(rows: Sequence[Row], key: str) -> list[Compared]:
    """Rungs from the ground up. key: under which a row's values hold its name."""
    ordered = sorted(rows, key=lambda r: r.number)
    found: list[Compared] = []
    base: Row | None = None
    previous: Row | None = None
    for row in ordered:
        if row.cost is None:
            found.append(Compared(row.values[key], row, None, None))
            continue
        against = [
            None if other is None else speed_up(row, other, other.values[key]) for other in (previous, base)
        ]
        found.append(Compared(row.values[key], row, against[0], against[1]))
        base, previous = base or row, row
    return found


def speed_up(row: Row, other: Row, name: str) -> SpeedUp | None:
    """How many times faster a row is. Means of independent steps: the interval is Welch's, on the logarithm."""
    if not row.cost or not other.cost:
        return None
    ratio = other.cost / row.cost
    parts = [_relative_error(r) for r in (row, other)]
    if parts[0] is None or parts[1] is None:
        return SpeedUp(name, ratio)
    variances = [p**2 for p in parts if p is not None]
    total = sum(variances)
    if total == 0:
        return SpeedUp(name, ratio, ratio, ratio)
    freedom = total**2 / sum(v**2 / (r.steps - 1) for v, r in zip(variances, (row, other)))
    half = t95(max(1, int(freedom))) * math.sqrt(total)
    return SpeedUp(name, ratio, ratio * math.exp(-half), ratio * math.exp(half))


def _relative_error(row: Row) -> float | None:
    """Standard error of the mean step time, as a share of it; None without an interval."""
    if row.high_ms is None or not row.step_time_ms or row.steps < 2:
        return None
    return (row.high_ms - row.step_time_ms) / t95(row.steps - 1) / row.step_time_ms
