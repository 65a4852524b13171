"""Owns a chart on screen: title, legend in words, and lines drawn by `plot.draw` in a worker thread."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events, work
from textual.message import Message
from textual.strip import Strip

from tui.widgets.paint import Line, Painted, fit, line_width
from tui.widgets.plot import ChartData, draw, off_chart
from tui.widgets.words import three


class Chart(Painted):
    """Measured values against the predicted one. `show` may be called at any rate: drawing coalesces."""

    DEFAULT_CSS = """
    Chart { height: 1fr; width: 1fr; background: transparent; }
    """

    @dataclass
    class Drawn(Message):
        """The worker's result: one message a picture."""

        chart: Chart
        lines: list[Line]

        @property
        def control(self) -> Chart:
            return self.chart

    def __init__(self, data: ChartData, *, simple: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.data = data
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
        return "\n".join("".join(text for text, _ in line) for line in [self.title_line(), *self._lines])

    def show(self, data: ChartData) -> None:
        """Draw this instead; nothing happens when nothing changed."""
        if data != self.data or not self._lines:
            self.data = data
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
        self._draw(self.data, self.size.width, self.size.height - 1)

    @work(thread=True, group="chart", exclusive=False, exit_on_error=False)
    def _draw(self, data: ChartData, width: int, height: int) -> None:
        lines: list[Line] = [[("chart not drawn", "bad")]]
        try:
            lines = draw(data, width, height, self._simple)
        finally:
            self.post_message(self.Drawn(self, lines))

    def on_chart_drawn(self, event: Drawn) -> None:
        event.stop()
        self._drawing = False
        self._lines = event.lines
        self.refresh()
        if self._stale:
            self._stale = False
            self._draw_soon()

    def title_line(self) -> Line:
        """`step time ms   ⣿ 3,702   ─ predicted 3,700`: the latest value and what was expected."""
        data = self.data
        line = [(data.title, "strong"), (f" {data.unit}" if data.unit else "", "muted")]
        if len(data.series):
            line += [("  ⣿ ", "part-0"), (three(data.series.high[-1]), "")]
        if data.expected is not None:
            away = off_chart(data)
            line += [("  ─ ", "part-1"), (f"predicted {three(data.expected)}", "")]
            line += [(f" ({away} this chart)", "muted")] if away else []
        return line if line_width(line) <= self.size.width else [p for p in line if p[1] != "muted"]

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y == 0:
            return self.paint(fit(self.title_line(), width), width)
        return self.paint(self._lines[y - 1] if y <= len(self._lines) else [], width)
