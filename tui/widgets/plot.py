"""Owns drawing one chart into painted lines with plotext 6. Pure: data and a size in, lines out.

Runs in a worker thread: plotext is imported here, at the first drawing, and its one figure is locked.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tui.widgets.paint import Line, Span
from tui.widgets.words import three

_FIGURE = threading.Lock()  # plotext has one figure for the whole process

# Colours serve as tags: what was drawn in one comes back from plotext's matrix as this role.
Tag = tuple[int, int, int]
MEASURED, PREDICTED, INTERVAL = (1, 0, 0), (2, 0, 0), (3, 0, 0)
_ROLES: dict[object, str] = {MEASURED: "part-0", PREDICTED: "part-1", INTERVAL: "unsure"}


@dataclass(frozen=True, slots=True)
class Series:
    """Values over iterations, reduced to a lowest and a highest value per x so that spikes stay."""

    x: Sequence[float] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True, slots=True)
class ChartData:
    """One chart. expected_low/high: the interval of the prediction. warm_up: leading points not scaled for."""

    title: str
    unit: str = ""
    series: Series = field(default_factory=Series)
    expected: float | None = None
    expected_low: float | None = None
    expected_high: float | None = None
    warm_up: int = 0
    empty: str = "no steps yet"


def y_range(data: ChartData) -> tuple[float, float]:
    """The values the chart spans: all points after warm-up, and the prediction when it is not far away."""
    skip = data.warm_up if len(data.series) > data.warm_up + 1 else 0
    values = [v for v in (*data.series.low[skip:], *data.series.high[skip:]) if math.isfinite(v)]
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    reach = max(high - low, abs(high) * 0.5)
    for extra in (data.expected, data.expected_low, data.expected_high):
        if extra is not None and low - reach <= extra <= high + reach:
            low, high = min(low, extra), max(high, extra)
    pad = (high - low) * 0.04 or abs(high) * 0.05 or 1.0
    return (max(low - pad, 0.0) if low >= 0 else low - pad), high + pad


def off_chart(data: ChartData) -> str:
    """Words for a prediction that is too far away to be drawn, else empty."""
    if data.expected is None or not len(data.series):
        return ""
    low, high = y_range(data)
    return "" if low <= data.expected <= high else "below" if data.expected < low else "above"


def ticks(low: float, high: float, wanted: int) -> list[float]:
    """About `wanted` round numbers inside a range."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    raw = span / max(wanted, 1)
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def labels(values: Sequence[float]) -> list[str]:
    """Tick labels with as few decimals as tell them apart."""
    for decimals in range(5):
        said = [f"{v:,.{decimals}f}" for v in values]
        if len(set(said)) == len(values) and all(
            abs(float(s.replace(",", "")) - v) < 1e-9 + abs(v) * 1e-3
            for s, v in zip(said, values, strict=True)
        ):
            return said if max(map(len, said), default=0) <= 8 else [three(v) for v in values]
    return [three(v) for v in values]


def draw(data: ChartData, width: int, height: int, simple: bool = False) -> list[Line]:
    """The chart as painted lines, `width` x `height` cells. simple: dots instead of braille."""
    if width < 16 or height < 4:
        return [[(" chart needs more room"[:width], "muted")]]
    if not len(data.series):
        blank: list[Line] = [[] for _ in range(height)]
        blank[height // 2] = [(data.empty.center(width)[:width], "muted")]
        return blank
    with _FIGURE:
        return _rows(*_build(data, width, height, simple))


def _build(
    data: ChartData, width: int, height: int, simple: bool
) -> tuple[str, Callable[[int, int], object], int, int]:
    import plotext

    low, high = y_range(data)
    first, last = float(data.series.x[0]), float(data.series.x[-1])
    last = max(last, first + 1)
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, height)
    figure.axes(False, axis="x", side="upper")
    figure.axes(False, axis="y", side="right")
    figure.ruler("x").lim(first, last)
    figure.ruler("y").lim(low, high)
    marks = ticks(low, high, max(2, height // 3))
    marks = marks if len(marks) > 1 else ticks(low, high, 2 * max(2, height // 3))
    figure.ruler("y").ticks(marks, labels(marks))
    x_marks = _x_ticks(first, last, width)
    figure.ruler("x").ticks(x_marks, [f"{x:,.0f}" for x in x_marks])
    for value, tag, sign in _levels(data, low, high):
        _signal(figure, plotext, [first, last], [value, value], sign, tag)
    x, y = _zigzag(data.series, low, high)
    _signal(figure, plotext, x, y, "•" if simple else "braille", MEASURED)
    matrix = figure.build()
    return matrix.string(True), lambda r, c: matrix.get(r, c).foreground(), matrix.width(), matrix.height()


def _signal(figure: object, plotext: object, x: list[float], y: list[float], sign: str, tag: Tag) -> None:
    marker = plotext.marker(sign, plotext.pixel(tag))  # type: ignore[attr-defined]
    signal = figure.signal(x, y, marker=marker)  # type: ignore[attr-defined]
    signal.lines()
    figure.draw(signal)  # type: ignore[attr-defined]


def _levels(data: ChartData, low: float, high: float) -> list[tuple[float, Tag, str]]:
    wanted = (
        (data.expected_low, INTERVAL, "┈"),
        (data.expected_high, INTERVAL, "┈"),
        (data.expected, PREDICTED, "─"),
    )
    return [(v, tag, sign) for v, tag, sign in wanted if v is not None and low <= v <= high]


def _zigzag(series: Series, low: float, high: float) -> tuple[list[float], list[float]]:
    """Every x twice, at its lowest and highest value, so that a drawn line shows the whole spread."""
    x: list[float] = []
    y: list[float] = []
    for at, bottom, top in zip(series.x, series.low, series.high, strict=True):
        for value in (bottom, top) if bottom != top else (bottom,):
            if math.isfinite(value):
                x.append(float(at))
                y.append(min(max(value, low), high))
    return x, y


def _x_ticks(first: float, last: float, width: int) -> list[float]:
    apart = (last - first) * 9 / width  # labels nearer than nine cells would touch
    inner = [t for t in ticks(first, last, max(1, width // 18)) if t == int(t)]
    return [first, *(t for t in inner if first + apart < t < last - apart), last]


def _rows(text: str, colour: Callable[[int, int], object], width: int, height: int) -> list[Line]:
    rows: list[Line] = []
    for r, chars in enumerate(text.split("\n")[:height]):
        line: list[Span] = []
        for c, char in enumerate(chars[:width]):
            role = _ROLES.get(colour(r, c), "muted") if char != " " else "muted"
            if line and line[-1][1] == role:
                line[-1] = (line[-1][0] + char, role)
            else:
                line.append((char, role))
        rows.append(line)
    return rows
