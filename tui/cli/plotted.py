"""Owns charts of runs as lines of a terminal, and as JSON: `results plot`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt_tune.logs.series import reduce, window
from gpt_tune.workflows.pictures.paint import AXIS_TITLES, TITLES
from tui.widgets.chart_data import ChartData, Mark, Series
from tui.widgets.paint import text_of
from tui.widgets.plot import LETTERS, draw

if TYPE_CHECKING:
    from gpt_tune.workflows.pictures.paint import Panel
    from gpt_tune.workflows.series import NamedSeries

HEIGHT = 16
LEAST_WIDTH, MOST_WIDTH = 40, 400


def lines_of(panels: Sequence[Panel], axis: str, log: bool, width: int | None) -> list[str]:
    """Charts below each other, without colours: they go where text goes."""
    columns = width or (shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80)
    columns = min(max(columns, LEAST_WIDTH), MOST_WIDTH)
    lines: list[str] = []
    for panel in panels:
        lines.append(f"{TITLES.get(panel.figure, panel.figure)}, by {AXIS_TITLES.get(axis, axis)}")
        lines += _legend(panel.series)
        lines += [text_of(line).rstrip() for line in draw(_chart(panel, columns, log), columns, HEIGHT)]
        lines.append("")
    return lines


def _legend(series: Sequence[NamedSeries]) -> list[str]:
    if len(series) < 2:
        return [f"  {s.name}{_none(s)}" for s in series]
    return [f"  {'line' if i == 0 else LETTERS[i - 1]}: {s.name}{_none(s)}" for i, s in enumerate(series)]


def _none(series: NamedSeries) -> str:
    return " (no steps with this figure)" if series.empty else ""


def _chart(panel: Panel, columns: int, log: bool) -> ChartData:
    known = [s.x[np.isfinite(s.y)] for s in panel.series if not s.empty]
    if not known:
        return ChartData(panel.figure, empty="no steps with this figure")
    over = (float(min(x.min() for x in known)), float(max(x.max() for x in known)))
    first, *others = panel.series
    return ChartData(
        panel.figure,
        series=_reduced(first, columns, over, log),
        others=tuple((s.name, _reduced(s, columns, over, log)) for s in others),
        marks=tuple(Mark(m.x, m.kind, m.text) for m in panel.marks if over[0] <= m.x <= over[1]),
        x_range=over,
        log=log,
    )


def _reduced(series: NamedSeries, columns: int, over: tuple[float, float], log: bool) -> Series:
    x, y = window(series.x, series.y, *over)
    small = reduce(x, y, columns, log)
    return Series(small.x.tolist(), small.low.tolist(), small.high.tolist())


def panels_json(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Every point that was printed; NaN and inf are left out."""
    found = []
    for panel in panels:
        runs = []
        for series in panel.series:
            keep = np.isfinite(series.y)
            runs.append({"name": series.name, "x": series.x[keep].tolist(), "y": series.y[keep].tolist()})
        marks = [{"x": m.x, "kind": m.kind, "text": m.text, "iteration": m.iteration} for m in panel.marks]
        found.append({"figure": panel.figure, "runs": runs, "marks": marks})
    return found
