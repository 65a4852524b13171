"""Owns painting charts of runs: one panel a figure, the runs in it told apart by colour and by dashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpt_tune.errors import UserError
from gpt_tune.logs.series import reduce
from gpt_tune.workflows.pictures.canvas import Canvas, Point, Svg
from gpt_tune.workflows.pictures.raster import Png
from gpt_tune.workflows.pictures.scales import Scale, scale_of
from gpt_tune.workflows.series import ChartMark, NamedSeries

WIDTH, PANEL_HEIGHT = 960, 320  # pixels
LEAST_WIDTH, MOST_WIDTH = 320, 8000
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 24, 34, 44
_LEGEND = 20
_INK, _GRID, _FAINT = "#222222", "#e2e2e2", "#777777"
# Told apart by people who see colours differently, and each with dashes of its own.
_COLOURS = ("#0b5fa5", "#d1495b", "#2e8b57", "#b8860b", "#6a4c93")
_DASHES: tuple[tuple[float, ...], ...] = ((), (7.0, 3.0), (2.0, 2.0), (10.0, 3.0, 2.0, 3.0), (5.0, 5.0))
_MARKS = {
    "checkpoint": "#2e8b57", "restart": "#6a4c93", "validation": "#999999", "warning": "#b8860b", "error": "#c1121f",
}  # fmt: skip
TITLES = {
    "step_time_ms": "step time (ms)", "loss": "loss", "learning_rate": "learning rate", "grad_norm": "gradient norm",
    "loss_scale": "loss scale", "logged_tflops": "the trainer's own TFLOPS", "model_tflops": "model TFLOPS per GPU",
    "tokens_per_second_per_gpu": "tokens/s per GPU", "samples_per_second": "samples/s", "mfu": "MFU",
}  # fmt: skip
AXIS_TITLES = {"iteration": "iteration", "hours": "hours of training", "tokens": "tokens"}


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure of some runs."""

    figure: str
    series: tuple[NamedSeries, ...]
    marks: tuple[ChartMark, ...] = ()


def picture(
    panels: Sequence[Panel],
    kind: str,
    title: str,
    axis: str = "iteration",
    log: bool = False,
    width: int = WIDTH,
) -> bytes:
    """The file's bytes. kind: svg | png. log: a logarithmic y axis. UserError for another kind or width."""
    if kind not in ("svg", "png"):
        raise UserError(f"A picture cannot be written as {kind!r}.", "End the file name in .svg or .png.")
    if not LEAST_WIDTH <= width <= MOST_WIDTH:
        nearest = min(max(width, LEAST_WIDTH), MOST_WIDTH)
        raise UserError(f"A picture {width} pixels wide is not possible.", f"Nearest: {nearest}.")
    names = list(dict.fromkeys(s.name for p in panels for s in p.series))
    head = 30 + _LEGEND * len(names)
    height = head + PANEL_HEIGHT * len(panels)
    canvas: Canvas = Svg(width, height, title) if kind == "svg" else Png(width, height, title)
    canvas.text((16, 20), title[:120], _INK, bold=True)
    for index, name in enumerate(names):
        y = 38 + _LEGEND * index
        canvas.line([(16, y - 4), (56, y - 4)], _COLOURS[index % 5], 2.0, _DASHES[index % 5])
        canvas.text((64, y), name[:100], _INK)
    for index, panel in enumerate(panels):
        _panel(canvas, panel, names, head + index * PANEL_HEIGHT, width, axis, log)
    return canvas.finish()


def _panel(
    canvas: Canvas, panel: Panel, names: Sequence[str], top: float, width: int, axis: str, log: bool
) -> None:
    left, right = float(_LEFT), float(width - _RIGHT)
    upper, lower = top + _TOP, top + PANEL_HEIGHT - _BOTTOM
    canvas.text((left, top + 18), TITLES.get(panel.figure, panel.figure), _INK, bold=True)
    drawn = [s for s in panel.series if not s.empty]
    if not drawn:
        canvas.text(((left + right) / 2, (upper + lower) / 2), "no steps with this figure", _FAINT, "middle")
        return
    across = scale_of([s.x[np.isfinite(s.y)] for s in drawn])
    up = scale_of([s.y for s in drawn], log, spare=0.04)
    _axes(canvas, across, up, (left, right, upper, lower), axis)
    for mark in panel.marks:
        place = across.place(mark.x)
        if 0.0 <= place <= 1.0:
            at = left + place * (right - left)
            canvas.line([(at, upper), (at, lower)], _MARKS[mark.kind], 1.0, (2.0, 4.0))
    for series in drawn:
        index = names.index(series.name) % 5
        x, y = reduce(series.x, series.y, int(right - left), log).points()
        points: list[Point] = [
            (left + across.place(a) * (right - left), lower - up.place(b) * (lower - upper))
            for a, b in zip(x.tolist(), y.tolist())
        ]
        canvas.line(points if len(points) > 1 else _dot(points), _COLOURS[index], 1.6, _DASHES[index])


def _dot(points: Sequence[Point]) -> list[Point]:
    """A run of one step still shows."""
    return [(x + dx, y) for x, y in points for dx in (-3.0, 3.0)]


def _axes(
    canvas: Canvas, across: Scale, up: Scale, box: tuple[float, float, float, float], axis: str
) -> None:
    left, right, upper, lower = box
    for place, label in up.ticks(5):
        y = lower - place * (lower - upper)
        if upper - 1 <= y <= lower + 1:
            canvas.line([(left, y), (right, y)], _GRID, 1.0)
            canvas.text((left - 8, y + 4), label, _FAINT, "end")
    for place, label in across.ticks(8):
        x = left + place * (right - left)
        canvas.line([(x, lower), (x, lower + 5)], _FAINT, 1.0)
        canvas.text((x, lower + 19), label, _FAINT, "middle")
    canvas.line([(left, upper), (left, lower), (right, lower)], _FAINT, 1.0)
    canvas.text(((left + right) / 2, lower + 37), AXIS_TITLES.get(axis, axis), _FAINT, "middle")
