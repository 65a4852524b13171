"""Owns what one chart shows, and the part of it that is in view: zoom, pan, smoothing, other runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gpt_tune.logs.columns import Floats
from gpt_tune.logs.series import reduce, smooth, window
from tui.widgets.scales import settled, settled_window

AXES = (("iteration", "step"), ("hours", "hours"), ("tokens", "tokens"))
LEAST_STEPS = 8.0  # the narrowest view, in steps of the axis' mean distance
FIRST_STEPS = 24.0  # the axis of a run that has just begun
SMOOTH_SHARE = 25  # smoothing goes over a 25th of what is in view
SPARE = 0.04


@dataclass(frozen=True, slots=True)
class Series:
    """Values over iterations, reduced to a lowest and a highest value per x so that spikes stay."""

    x: Sequence[float] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a place of the axis. kind: checkpoint, restart, warning or validation."""

    x: float
    kind: str
    text: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Another run, at full length."""

    name: str
    x: Floats
    y: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """One quantity of a run at full length. expected, low, high: what was predicted of it, in its unit.
    ended: no more values will come."""

    name: str
    title: str
    unit: str = ""
    x: Floats = field(default_factory=lambda: np.empty(0))
    y: Floats = field(default_factory=lambda: np.empty(0))
    expected: float | None = None
    expected_low: float | None = None
    expected_high: float | None = None
    warm_up: int = 0
    marks: tuple[Mark, ...] = ()
    others: tuple[Curve, ...] = ()
    waiting: str = "no steps yet"
    axis: str = "iteration"
    ended: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """What of a figure is in view. span: how much of the axis (None: all); stop: its right end (None: the newest)."""

    axis: str = "iteration"
    span: float | None = None
    stop: float | None = None
    log: bool = False
    smooth: bool = False


@dataclass(frozen=True, slots=True)
class ChartData:
    """One picture. expected_low/high: the interval of the prediction. warm_up: leading points not scaled for.
    others: (name, series) of other runs. x_range: None for the series' own. whole: x are numbers of things."""

    title: str
    unit: str = ""
    series: Series = field(default_factory=Series)
    expected: float | None = None
    expected_low: float | None = None
    expected_high: float | None = None
    warm_up: int = 0
    empty: str = "no steps yet"
    smooth: Series = field(default_factory=Series)
    others: tuple[tuple[str, Series], ...] = ()
    marks: tuple[Mark, ...] = ()
    x_range: tuple[float, float] | None = None
    log: bool = False
    whole: bool = False


def frame(figure: Figure, view: View, columns: int) -> ChartData:
    """What is in view, reduced to at most `columns` places with the extremes of each kept."""
    everything = [figure.x, *(other.x for other in figure.others)]
    data = ChartData(
        figure.title, figure.unit, Series(), figure.expected, figure.expected_low, figure.expected_high,
        empty=figure.waiting, log=view.log,
        whole=figure.axis == "rank" or (figure.axis == "iteration" and figure.ended),
    )  # fmt: skip
    if not any(len(x) for x in everything):
        return data
    start, stop, _ = bounds(everything, view)
    over = _span(figure, view, start, stop)
    start, end = over
    columns = max(columns, 8)
    return replace(
        data,
        series=_reduced(figure.x, figure.y, columns, over, view.log),
        smooth=_smoothed(figure, columns, over, view) if view.smooth else Series(),
        others=tuple((o.name, _reduced(o.x, o.y, columns, over, view.log)) for o in figure.others),
        marks=tuple(m for m in figure.marks if start <= m.x <= end),
        warm_up=(figure.warm_up if len(figure.x) <= columns else 1) if start <= _first(everything) else 0,
        x_range=over,
    )


def _span(figure: Figure, view: View, start: float, stop: float) -> tuple[float, float]:
    """The ends of the axis: with room for what will come only where something will."""
    if figure.axis == "rank" and start == stop:
        return start - 0.5, stop + 0.5
    if view.stop is not None or figure.ended or figure.axis == "rank":
        return start, stop
    moving = view.span is not None
    least = FIRST_STEPS if figure.axis == "iteration" and not moving else 0.0
    return settled_window(start, stop, moving, least)


def bounds(axes: Sequence[Floats], view: View) -> tuple[float, float, float]:
    """(first, last in view, newest of all) of the axis."""
    known = [x[np.isfinite(x)] for x in axes if len(x)]
    known = [x for x in known if len(x)]
    if not known:
        return 0.0, 1.0, 1.0
    first, last = min(float(x.min()) for x in known), max(float(x.max()) for x in known)
    stop = last if view.stop is None else min(view.stop, last)
    start = first if view.span is None else max(first, stop - view.span)
    return start, stop, last


def zoom(view: View, axes: Sequence[Floats], factor: float) -> View:
    """A narrower (factor below 1) or wider view; it keeps following when it did."""
    start, stop, last = bounds(axes, view)
    first = _first(axes)
    count = max(len(x) for x in axes) if axes else 0
    least = LEAST_STEPS * (last - first) / max(count - 1, 1)
    span = max((stop - start) * factor, least)
    if span >= last - first:
        return replace(view, span=None, stop=None)
    if view.stop is None:
        return replace(view, span=span)
    middle = (start + stop) / 2
    return _placed(view, span, middle + span / 2, first, last)


def pan(view: View, axes: Sequence[Floats], direction: int) -> View:
    """A quarter to the left or right; at the right end it follows again."""
    start, stop, last = bounds(axes, view)
    first = _first(axes)
    span = stop - start
    if span >= last - first:
        return view
    return _placed(view, span, stop + direction * span / 4, first, last)


def _placed(view: View, span: float, stop: float, first: float, last: float) -> View:
    stop = max(stop, first + span)
    return replace(view, span=span, stop=None if stop >= last else stop)


def _first(axes: Sequence[Floats]) -> float:
    firsts = [float(np.nanmin(x)) for x in axes if len(x) and np.isfinite(x).any()]
    return min(firsts, default=0.0)


def _reduced(x: Floats, y: Floats, columns: int, over: tuple[float, float], log: bool) -> Series:
    xs, ys = window(x, y, *over)
    small = reduce(xs, ys, columns, log, over)
    at = small.x.tolist()
    if len(at) > 1:  # a column's middle would hide where the run begins and ends
        at[0], at[-1] = min(at[0], float(xs[0])), max(at[-1], float(xs[-1]))
    return Series(at, small.low.tolist(), small.high.tolist())


def _smoothed(figure: Figure, columns: int, over: tuple[float, float], view: View) -> Series:
    xs, ys = window(figure.x, figure.y, *over)
    means = smooth(ys, max(len(ys) // SMOOTH_SHARE, 3))
    every = max(len(xs) // columns, 1)
    small = reduce(xs[::every], means[::every], columns, view.log, over)
    middle = [(low + high) / 2 for low, high in zip(small.low.tolist(), small.high.tolist(), strict=True)]
    return Series(small.x.tolist(), middle, middle)


def y_range(data: ChartData) -> tuple[float, float]:
    """The values the chart spans, as logarithms where the axis is one: all points after warm-up, and the prediction
    when it is not far away."""
    skip = data.warm_up if len(data.series) > data.warm_up + 1 else 0
    values = [*data.series.low[skip:], *data.series.high[skip:]]
    values += [v for _, series in data.others for v in (*series.low, *series.high)]
    values = [v for v in values if math.isfinite(v) and (v > 0 or not data.log)]
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    reach = max(high - low, abs(high) * 0.5)
    for extra in (data.expected, data.expected_low, data.expected_high):
        if extra is not None and low - reach <= extra <= high + reach and (extra > 0 or not data.log):
            low, high = min(low, extra), max(high, extra)
    if data.log:
        low, high = math.log10(low), math.log10(high)
        pad = (high - low) * SPARE or 0.05
        return low - pad, high + pad
    pad = (high - low) * SPARE or abs(high) * 0.05 or 1.0
    low, high = settled(low - pad, high + pad)
    return (max(low, 0.0) if min(values) >= 0 else low), high


def off_chart(data: ChartData) -> str:
    """Words for a prediction that is too far away to be drawn, else empty."""
    if data.expected is None or not len(data.series):
        return ""
    low, high = y_range(data)
    if data.log:
        low, high = 10**low, 10**high
    return "" if low <= data.expected <= high else "below" if data.expected < low else "above"
