"""Owns drawing one chart into painted lines with plotext 6. Pure: data and a size in, lines out.

Runs in a worker thread: plotext is imported here, at the first drawing, and its one figure is locked.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

from tui.widgets.chart_data import ChartData, Mark, Series, y_range
from tui.widgets.paint import Line, Span, wrap
from tui.widgets.scales import labels, log_ticks, short, ticks

_FIGURE = threading.Lock()  # plotext has one figure for the whole process

# Colours serve as tags: what was drawn in one comes back from plotext's matrix as this role.
Tag = tuple[int, int, int]
MEASURED, PREDICTED, INTERVAL, RAW = (1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 0, 0)
OTHERS = tuple((10 + i, 0, 0) for i in range(4))
OTHER_ROLES = ("part-2", "part-3", "part-5", "part-6")
_ROLES: dict[object, str] = {
    MEASURED: "part-0",
    PREDICTED: "part-1",
    INTERVAL: "unsure",
    RAW: "part-4",
    **dict(zip(OTHERS, OTHER_ROLES, strict=True)),
}
LETTERS = "bcde"  # of the other runs, drawn into their lines: colours alone would not tell them apart
# What happened, in letters; the worst last, so that it stays where two fall into one column.
MARKS = {
    "validation": ("V", "muted"),
    "checkpoint": ("C", "good"),
    "restart": ("R", "accent"),
    "warning": ("!", "warn"),
    "error": ("E", "bad"),
}


def draw(data: ChartData, width: int, height: int, simple: bool = False) -> list[Line]:
    """The chart as painted lines, `width` x `height` cells. simple: dots instead of braille."""
    if width < 16 or height < 4:
        return [[(" chart needs more room"[:width], "muted")]]
    if not len(data.series) and not data.others:
        return _empty(data.empty, width, height)
    marked = bool(data.marks) and height >= 6
    with _FIGURE:
        rows = _rows(*_build(data, width, height - marked, simple))
    return [mark_row(data, rows, width), *rows] if marked else rows


def _empty(words: str, width: int, height: int) -> list[Line]:
    said = wrap([(words, "muted")], max(width - 2, 1))[:height]
    blank: list[Line] = [[] for _ in range(height)]
    for at, line in enumerate(said, max((height - len(said)) // 2, 0)):
        blank[at] = [(" ", ""), *line]
    return blank


def _build(
    data: ChartData, width: int, height: int, simple: bool
) -> tuple[str, Callable[[int, int], object], int, int]:
    import plotext

    low, high = y_range(data)
    first, last = span_of(data)
    # The size is the widget's, whatever terminal there is; in a browser there is none.
    plotext.terminal.limit(False, False)
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, height)
    figure.axes(False, axis="x", side="upper")
    figure.axes(False, axis="y", side="right")
    figure.ruler("x").lim(first, last)
    figure.ruler("y").lim(low, high)
    marks, said = _y_ticks(data, low, high, height)
    figure.ruler("y").ticks(marks, said)
    x_marks, said = _x_ticks(first, last, width, data.whole)
    figure.ruler("x").ticks(x_marks, said)
    for value, tag, sign in _levels(data, low, high):
        _signal(figure, plotext, [first, last], [value, value], sign, tag)
    dots = "•" if simple else "braille"
    for i, (_, series) in enumerate(data.others[: len(OTHERS)]):
        x, y = _zigzag(series, low, high, data.log)
        _signal(figure, plotext, x, y, dots, OTHERS[i])
    x, y = _zigzag(data.series, low, high, data.log)
    _signal(figure, plotext, x, y, dots, RAW if len(data.smooth) else MEASURED)
    if len(data.smooth):
        x, y = _zigzag(data.smooth, low, high, data.log)
        _signal(figure, plotext, x, y, "•", MEASURED)
    for i, (_, series) in enumerate(data.others[: len(OTHERS)]):
        x, y = _few(series, low, high, data.log)
        _signal(figure, plotext, x, y, LETTERS[i], OTHERS[i], lines=False)
    matrix = figure.build()
    return matrix.string(True), lambda r, c: matrix.get(r, c).foreground(), matrix.width(), matrix.height()


def span_of(data: ChartData) -> tuple[float, float]:
    """The ends of the x axis."""
    if data.x_range is not None:
        first, last = data.x_range
    else:
        first, last = float(data.series.x[0]), float(data.series.x[-1])
    return first, last if last > first else first + 1


def _signal(
    figure: object, plotext: object, x: list[float], y: list[float], sign: str, tag: Tag, lines: bool = True
) -> None:
    if not x:
        return
    marker = plotext.marker(sign, plotext.pixel(tag))  # type: ignore[attr-defined]
    signal = figure.signal(x, y, marker=marker)  # type: ignore[attr-defined]
    if lines:
        signal.lines()
    figure.draw(signal)  # type: ignore[attr-defined]


def _levels(data: ChartData, low: float, high: float) -> list[tuple[float, Tag, str]]:
    wanted = (
        (data.expected_low, INTERVAL, "┈"),
        (data.expected_high, INTERVAL, "┈"),
        (data.expected, PREDICTED, "─"),
    )
    levels = [(_place(v, data.log), tag, sign) for v, tag, sign in wanted if v is not None]
    return [(v, tag, sign) for v, tag, sign in levels if low <= v <= high]


def _place(value: float, log: bool) -> float:
    """Where a value stands on the axis; NaN for one that a logarithmic axis has no place for."""
    if not log:
        return value
    return math.log10(value) if value > 0 else math.nan


def _zigzag(series: Series, low: float, high: float, log: bool) -> tuple[list[float], list[float]]:
    """Every x twice, at its lowest and highest value, so that a drawn line shows the whole spread."""
    x: list[float] = []
    y: list[float] = []
    for at, bottom, top in zip(series.x, series.low, series.high, strict=True):
        for value in (bottom, top) if bottom != top else (bottom,):
            place = _place(value, log)
            if math.isfinite(place):
                x.append(float(at))
                y.append(min(max(place, low), high))
    return x, y


def _few(series: Series, low: float, high: float, log: bool) -> tuple[list[float], list[float]]:
    """A few places along a line, where its letter goes."""
    x, y = _zigzag(series, low, high, log)
    at = sorted({len(x) * part // 8 for part in (1, 3, 5, 7)}) if x else []
    return [x[i] for i in at], [y[i] for i in at]


def _y_ticks(data: ChartData, low: float, high: float, height: int) -> tuple[list[float], list[str]]:
    wanted = max(2, height // 3)
    if data.log:
        marks = log_ticks(low, high, wanted)
        return marks, [short(float(f"{10**m:.3g}")) for m in marks]
    marks = ticks(low, high, wanted)
    marks = marks if len(marks) > 1 else ticks(low, high, 2 * wanted)
    return marks, labels(marks)


def _x_ticks(
    first: float, last: float, width: int, only_whole: bool = False
) -> tuple[list[float], list[str]]:
    apart = (last - first) * 9 / width  # labels nearer than nine cells would touch
    whole = last - first >= 4 and first == int(first)
    inner = [t for t in ticks(first, last, max(1, width // 18)) if not whole or t == int(t)]
    marks = [first, *(t for t in inner if first + apart < t < last - apart), last]
    if only_whole:
        marks = [m for m in marks if m == int(m)] or [float(round((first + last) / 2))]
    if whole or only_whole:
        return marks, [f"{m:,.0f}" if abs(m) < 1e7 else short(m) for m in marks]
    return marks, [short(m) for m in marks]


def mark_row(data: ChartData, rows: Sequence[Line], width: int) -> Line:
    """Letters above the chart where something happened."""
    text = "".join(part for part, _ in rows[0]) if rows else ""
    left = next((i for i, c in enumerate(text) if c in "│┤"), 0) + 1
    cells: dict[int, Mark] = {}
    first, last = span_of(data)
    order = list(MARKS)
    for mark in sorted(data.marks, key=lambda m: order.index(m.kind) if m.kind in order else -1):
        if mark.kind in MARKS:
            cells[left + round((mark.x - first) / (last - first) * (width - left - 1))] = mark
    line: list[Span] = []
    at = 0
    for cell in sorted(c for c in cells if c < width):
        line += [(" " * (cell - at), ""), MARKS[cells[cell].kind]]
        at = cell + 1
    return line


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
