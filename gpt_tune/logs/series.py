"""Owns making a series small enough to draw: minimum and maximum per column, so that a spike is never lost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gpt_tune.logs.columns import Floats


@dataclass(frozen=True, slots=True)
class Series:
    """Points to draw, x rising. low and high per column: of a column's values, the least and the greatest."""

    x: Floats
    low: Floats
    high: Floats

    def __len__(self) -> int:
        return len(self.x)

    def points(self) -> tuple[Floats, Floats]:
        """One polyline through both ends of every column (at most two points a column)."""
        both = self.low != self.high
        repeat = np.where(both, 2, 1)
        x = np.repeat(self.x, repeat)
        y = np.repeat(self.low, repeat)
        y[np.cumsum(repeat)[both] - 1] = self.high[both]
        return x, y


def reduce(
    x: ArrayLike,
    y: ArrayLike,
    width: int,
    logarithmic: bool = False,
    over: tuple[float, float] | None = None,
) -> Series:
    """At most `width` columns over the range of x. Values that cannot be drawn (NaN, inf, <= 0 on a log axis) go.

    over: the range that the columns divide, where it is wider than x: then columns stay put while x grows.
    """
    xs, ys = _drawable(x, y, logarithmic)
    width = max(1, int(width))
    if len(xs) <= width:
        return Series(xs, ys, ys)
    low, high = over or (float(xs[0]), float(xs[-1]))
    span = high - low
    column = np.zeros(len(xs), dtype=np.int64) if span <= 0 else ((xs - low) / span * width).astype(np.int64)
    column = np.clip(column, 0, width - 1)
    starts = np.flatnonzero(np.concatenate(([True], np.diff(column) > 0)))
    counts = np.diff(np.append(starts, len(xs)))
    # The middle of a column's own points, so that a lone point stays where it is.
    centres = np.add.reduceat(xs, starts) / counts
    return Series(centres, np.minimum.reduceat(ys, starts), np.maximum.reduceat(ys, starts))


def smooth(y: ArrayLike, span: int) -> Floats:
    """Centred moving average over up to `span` values, shorter at the ends; NaN is left out, not spread."""
    values: Floats = np.asarray(y, dtype=np.float64)
    half = max(0, int(span) // 2)
    if half == 0 or not len(values):
        return np.array(values, dtype=np.float64)
    good = np.isfinite(values)
    sums = np.concatenate(([0.0], np.cumsum(np.where(good, values, 0.0))))
    counts = np.concatenate(([0], np.cumsum(good)))
    index = np.arange(len(values))
    stop, start = np.minimum(index + half + 1, len(values)), np.maximum(index - half, 0)
    number = counts[stop] - counts[start]
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.asarray((sums[stop] - sums[start]) / number, dtype=np.float64)
    means[number == 0] = np.nan
    return means


def window(x: ArrayLike, y: ArrayLike, start: float, stop: float) -> tuple[Floats, Floats]:
    """The part with start <= x <= stop, for zoom and pan."""
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    keep = (xs >= start) & (xs <= stop)
    return xs[keep], ys[keep]


def _drawable(x: ArrayLike, y: ArrayLike, logarithmic: bool) -> tuple[Floats, Floats]:
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    count = min(len(xs), len(ys))
    xs, ys = xs[:count], ys[:count]
    keep = np.isfinite(xs) & np.isfinite(ys)
    if logarithmic:
        keep &= ys > 0
    xs, ys = xs[keep], ys[keep]
    if len(xs) > 1 and (np.diff(xs) < 0).any():
        order = np.argsort(xs, kind="stable")
        xs, ys = xs[order], ys[order]
    return xs, ys
