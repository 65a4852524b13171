"""Owns a chart on screen: title, legend in words, and lines drawn by `plot.draw` in a worker thread."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from textual import events
from textual.message import Message
from textual.strip import Strip

from tui.widgets.chart_data import ChartData, Figure, View, frame, off_chart
from tui.widgets.paint import Line, Painted, Span, fit, line_width, text_of
from tui.widgets.plot import LETTERS, MARKS, OTHER_ROLES, draw
from tui.widgets.regions import changed_regions
from tui.widgets.words import three

LEGEND_FROM = 13  # rows: lower charts keep them for the curve


class Chart(Painted):
    """Measured values against the predicted one. `show` may be called at any rate: drawing coalesces."""

    DEFAULT_CSS = """
    Chart { height: 1fr; width: 1fr; background: transparent; }
    """

    @dataclass
    class Drawn(Message):
        """The worker's result: one message a picture."""

        chart: Chart
        data: ChartData
        lines: list[Line]

        @property
        def control(self) -> Chart:
            return self.chart

    def __init__(self, figure: Figure, *, simple: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.figure = figure
        self.view = View()
        self.data = ChartData(figure.title, figure.unit, empty=figure.waiting)
        self._simple = simple
        self._lines: list[Line] = []
        self._drawing = False
        self._stale = False

    @property
    def settled(self) -> bool:
        """Whether what is on screen is the newest data."""
        return bool(self._lines) and not self._drawing and not self._stale

    @property
    def plain(self) -> str:
        """What is drawn, as plain text."""
        return "\n".join(text_of(line) for line in self._lines)

    def show(self, figure: Figure, view: View | None = None) -> None:
        """Draw this instead; nothing happens when nothing changed."""
        view = view or self.view
        if figure is not self.figure or view != self.view or not self._lines:
            self.figure, self.view = figure, view
            self._draw_soon()

    def on_resize(self, event: events.Resize) -> None:
        self._draw_soon()

    def _draw_soon(self) -> None:
        if self.size.width < 1 or self.size.height < 2:
            return
        if self._drawing:
            self._stale = True
            return
        self._drawing = True
        job = partial(self._draw, self.figure, self.view, self.size.width, self.size.height)
        # A description of its own: the usual one would spell out every value.
        self.run_worker(job, group="chart", description="chart", thread=True, exit_on_error=False)

    def _draw(self, figure: Figure, view: View, width: int, height: int) -> None:
        data = self.data
        lines: list[Line] = [[("chart not drawn", "bad")]]
        try:
            data = frame(figure, view, width)
            head = [title_line(data, view, width)]
            if height >= LEGEND_FROM:
                head += legend_lines(data)
            lines = [
                *(fit(line, width) for line in head),
                *draw(data, width, height - len(head), self._simple),
            ]
        finally:
            self.post_message(self.Drawn(self, data, lines))

    def on_chart_drawn(self, event: Drawn) -> None:
        event.stop()
        self._drawing = False
        before, self._lines, self.data = self._lines, event.lines, event.data
        changed = changed_regions(before, self._lines, self.size.width)
        if changed:
            self.refresh(*changed)  # a whole chart is 2 kB to a terminal, and slow links are common
        if self._stale:
            self._stale = False
            self._draw_soon()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        return self.paint(self._lines[y] if y < len(self._lines) else [], self.size.width)


def title_line(data: ChartData, view: View, width: int) -> Line:
    """`step time ms   ⣿ 3,702   ─ predicted 3,700`: the latest value and what was expected."""
    line: list[Span] = [(data.title, "strong"), (f" {data.unit}" if data.unit else "", "muted")]
    if len(data.series):
        line += [("  ⣿ ", "part-4" if len(data.smooth) else "part-0"), (three(data.series.high[-1]), "")]
    if len(data.smooth):
        line += [("  • ", "part-0"), (f"smooth {three(data.smooth.high[-1])}", "")]
    if data.expected is not None:
        away = off_chart(data)
        line += [("  ─ ", "part-1"), (f"predicted {three(data.expected)}", "")]
        line += [(f" ({away} this chart)", "muted")] if away else []
    line += [("  log", "muted")] if data.log else []
    line += [(f"  by {view.axis}", "muted")] if view.axis != "iteration" else []
    line += [("  in part", "accent")] if view.span is not None and view.stop is None else []
    line += [("  not the newest", "accent")] if view.stop is not None else []
    return line if line_width(line) <= width else [part for part in line if part[1] != "muted"]


def legend_lines(data: ChartData) -> list[Line]:
    """What the letters in the chart mean: other runs, and what happened."""
    line: list[Span] = []
    for (name, series), letter, role in zip(data.others, LETTERS, OTHER_ROLES, strict=False):
        line += [(f"{letter} ", role), (f"{name} {three(series.high[-1]) if len(series) else '-'}  ", "")]
    kinds = dict.fromkeys(mark.kind for mark in data.marks)
    for kind, (letter, role) in MARKS.items():
        if kind in kinds:
            line += [(f"{letter} ", role), (f"{kind}  ", "muted")]
    return [line] if line else []
