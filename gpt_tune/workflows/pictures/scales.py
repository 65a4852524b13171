"""Owns the axes of a picture: ranges that hold all values, round ticks, short labels. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gpt_tune.logs.columns import Floats


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from low to high; a logarithmic one holds their logarithms."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value stands, 0 at the low end and 1 at the high one; NaN where it has no place."""
        if self.log:
            value = math.log10(value) if value > 0 else math.nan
        return (value - self.low) / (self.high - self.low)

    def ticks(self, wanted: int) -> list[tuple[float, str]]:
        """(place, label) of about `wanted` round values."""
        if self.log:
            low, high = max(self.low, -307.0), min(self.high, 307.0)  # what a double holds
            powers = range(math.ceil(low), math.floor(high) + 1)
            every = max(1, len(powers) // max(wanted, 1))
            found = [(self.place(10.0**p), number(10.0**p)) for p in powers][::every]
            if len(found) >= 2:
                return found
            inner = np.linspace(low, high, max(wanted, 2))
            return [(self.place(10.0**v), number(10.0**v)) for v in inner]
        step = _nice((self.high - self.low) / max(wanted, 1))
        first = math.ceil(self.low / step - 1e-9)
        values = [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return [(self.place(v), number(v)) for v in values]


def scale_of(parts: Iterable[Floats], log: bool = False, spare: float = 0.0) -> Scale:
    """A scale that holds every finite value (positive ones if logarithmic); spare: share left free at both ends."""
    values = [p[np.isfinite(p)] for p in parts]
    values = [v[v > 0] if log else v for v in values]
    known = np.concatenate([v for v in values if len(v)]) if any(len(v) for v in values) else np.array([1.0])
    low, high = float(known.min()), float(known.max())
    if log:
        low, high = math.log10(low), math.log10(high)
    if high - low <= 1e-12 * max(abs(high), 1e-300):
        room = 0.5 if log or high == 0 else abs(high) * 0.05
        low, high = low - room, high + room
    free = spare * (high - low)
    return Scale(low - free, high + free, log)


def _nice(step: float) -> float:
    """The next round number: 1, 2 or 5 times a power of ten."""
    if not (step > 0 and math.isfinite(step)):
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(f * power for f in (1, 2, 5, 10) if f * power >= step * (1 - 1e-9))


def number(value: float) -> str:
    """A number in few letters: 12.5k, 3.2M, 0.25, 1e-05."""
    if value == 0 or abs(value) < 1e-300:
        return "0"
    for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if suffix == 'k' else size):.4g}{suffix}"
    return f"{value:.4g}"
