"""Owns the axes of a chart: which values it spans, where ticks stand and what they say. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tui.widgets.words import three

STEPS = 16  # an end of an axis lies on one of so many places, so that it stays put while values come


def nice(size: float) -> float:
    """The round number (1, 2, 2.5 or 5 times a power of ten) at or above a size."""
    if size <= 0 or not math.isfinite(size):
        return 1.0
    unit = 10.0 ** math.floor(math.log10(size))
    return next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= size * 0.999)


def settled(low: float, high: float) -> tuple[float, float]:
    """A range a little wider, with round ends: it need not change for each value that comes."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return low, high
    grid = nice(span / STEPS)
    return math.floor(low / grid + 1e-9) * grid, math.ceil(high / grid - 1e-9) * grid


def settled_window(first: float, last: float, moving: bool, least: float = 0.0) -> tuple[float, float]:
    """An axis that grows to the right: it ends up to an eighth beyond the last value and then stays for a while.
    moving: its beginning follows too. least: how long it is at least."""
    last = max(last, first + least)
    span = last - first
    if span <= 0:
        return first, first + 1
    grid = nice(span / 8)
    start = math.floor(first / grid + 1e-9) * grid if moving else first
    return start, math.ceil(last / grid - 1e-9) * grid


def ticks(low: float, high: float, wanted: int) -> list[float]:
    """About `wanted` round numbers inside a range."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    step = nice(span / max(wanted, 1))
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float, wanted: int) -> list[float]:
    """Ticks of an axis whose ends are logarithms: powers of ten, and 2 and 5 times them while there is room."""
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [
            place
            for power in range(math.floor(low), math.ceil(high) + 1)
            for factor in factors
            if low <= (place := power + math.log10(factor)) <= high
        ]
        if len(found) <= max(wanted, 2) + 1:
            break
    if len(found) > max(wanted, 2) + 1:
        found = found[:: -(-len(found) // max(wanted, 2))]
    return found if len(found) > 1 else ticks(low, high, wanted)


def labels(values: Sequence[float]) -> list[str]:
    """Tick labels with as few decimals as tell them apart."""
    for decimals in range(5):
        said = [f"{v:,.{decimals}f}" for v in values]
        if len(set(said)) == len(values) and all(
            abs(float(s.replace(",", "")) - v) < 1e-9 + abs(v) * 1e-3
            for s, v in zip(said, values, strict=True)
        ):
            return said if max(map(len, said), default=0) <= 8 else [short(v) for v in values]
    return [three(v) for v in values]


def short(value: float) -> str:
    """A large number in few letters: 12.5k, 3.2M, 410B."""
    for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if suffix == 'k' else size):.4g}{suffix}"
    return three(value)
