"""Owns the charts of the monitor: which ones are in view, zoom and pan, axes, one in full, other runs beside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Grid
from textual.screen import Screen

from tui.figures import FIGURES, TITLES
from tui.keys import with_names
from tui.widgets.chart import Chart
from tui.widgets.chart_data import AXES, Figure, View, pan, zoom

if TYPE_CHECKING:
    from tui.screens.monitor_follow import Following

NAMES = tuple(TITLES)
MOST_OTHERS = 4  # runs beside this one
TALL_ROWS = 44  # from here on there is room for two rows of charts
JOB_ACTIONS = frozenset(
    {"findings", "nodes", "cancel", "resubmit", "save"}
)  # not while one chart has the screen
PANES = ("both", "charts", "log")
LOW_ROWS = 15  # below this a chart would leave no room for the log


# In the footer these come after what is done with the job; where one chart has the screen, they come to the fore.
KEYS: list[BindingType] = [
    Binding("m", "figure(1)", "Figure", tooltip="The next figures: loss, model TFLOPS, grad norm…"),
    Binding("M", "figure(-1)", "Figure before", show=False, tooltip="The figures before"),
    Binding("plus,equals_sign", "zoom(0.5)", "Zoom", key_display="+", tooltip="Zoom into the newest steps"),
    Binding("minus", "zoom(2)", "Out", key_display="-", tooltip="Zoom out"),
    Binding("a", "whole", "All", tooltip="The whole run again"),
    Binding("less_than_sign", "pan(-1)", "Earlier", key_display="<", tooltip="Earlier steps"),
    Binding("greater_than_sign", "pan(1)", "Later", key_display=">", show=False, tooltip="Later steps"),
    Binding("o", "logarithmic", "Log scale", tooltip="Linear or logarithmic values"),
    Binding("t", "axis", "Axis", tooltip="By step, by hours of training, or by tokens"),
    Binding("u", "smooth", "Smooth", tooltip="Draw a smoothed line over the values"),
    Binding("p", "compare", "Compare", tooltip="Draw up to four other runs beside this one"),
]


class ChartKeys(Screen[None]):
    """Mixed into the monitor."""

    BINDINGS: ClassVar[list[BindingType]] = with_names(
        "Monitor",
        [
            Binding("g", "one_chart", "Chart", tooltip="One chart in full, and back"),
            Binding("w", "panes", "Panes", tooltip="Charts and log, only charts, only the log"),
        ],
    )

    following: Following | None
    chart_view = View()
    first_figure = 0
    others: tuple[Any, ...] = ()
    panes = PANES[0]
    full = False  # whether one chart has the whole screen

    # --- which charts

    def chart_names(self) -> tuple[str, ...]:
        """The figures in view, by the room there is."""
        width, height = self.size
        if self.full:
            count = 1
        elif self.panes == "charts":
            count = 4 if width < 120 else 6
        elif self.panes == "log":
            count = 0
        else:
            count = 2 if width < 120 else 3
            count *= 2 if height >= TALL_ROWS else 0 if height < LOW_ROWS else 1
        return tuple(NAMES[(self.first_figure + i) % len(NAMES)] for i in range(min(count, len(NAMES))))

    def arrange_charts(self) -> None:
        """Show the figures in view, and ask the thread for them."""
        names = self.chart_names()
        grid = self.query_one("#charts", Grid)
        grid.display = bool(names)
        charts = {name: self.query_one(f"#chart-{name}", Chart) for name in NAMES}
        for name, chart in charts.items():
            chart.display = name in names
        if names:
            columns = len(names) if len(names) <= 3 else -(-len(names) // 2)
            grid.styles.grid_size_columns = columns
            grid.styles.grid_size_rows = -(-len(names) // columns)
            for after, name in zip(names[1:], names, strict=False):
                grid.move_child(charts[after], after=charts[name])
        self.ask_charts(names)

    def ask_charts(self, names: tuple[str, ...] | None = None) -> None:
        if self.following is not None:
            names = self.chart_names() if names is None else names
            self.following.ask(charts=names, axis=self.chart_view.axis, others=self.others)

    def show_figures(self, figures: dict[str, Figure]) -> None:
        for name, figure in figures.items():
            if figure.axis in (self.chart_view.axis, "rank"):  # else the axis was changed meanwhile
                self.query_one(f"#chart-{name}", Chart).show(figure, self._view_of(name))

    def _view_of(self, name: str) -> View:
        """Ranks are few, and no steps: they are always shown whole."""
        return self.chart_view if name != "memory" else View("rank", log=self.chart_view.log)

    def _look(self, view: View) -> None:
        """Another view of what is there already: no thread is asked."""
        self.chart_view = view
        for name in self.chart_names():
            chart = self.query_one(f"#chart-{name}", Chart)
            chart.show(chart.figure, self._view_of(name))

    # --- keys

    def action_one_chart(self) -> None:
        self.full = not self.full
        self.after_panes()

    def action_figure(self, by: int) -> None:
        shown = max(len(self.chart_names()), 1)
        self.first_figure = (self.first_figure + by * (shown if shown < len(NAMES) else 1)) % len(NAMES)
        self.arrange_charts()

    def action_panes(self) -> None:
        """Cycle: charts and log, charts only, log only."""
        self.full = False
        self.panes = PANES[(PANES.index(self.panes) + 1) % len(PANES)]
        self.after_panes()

    def after_panes(self) -> None:
        """Show the panes that are wanted. Set on each widget: a class on the screen would style everything anew."""
        log = self.panes != "charts" and not self.full
        for name in ("#log", "#log-title"):
            self.query_one(name).display = log
        self.query_one("#stats").display = self.panes != "log" and not self.full
        self.arrange_charts()
        self.query_one("#charts").styles.height = "40%" if log else "1fr"
        self.refresh_bindings()

    def _axes(self) -> list[Any]:
        figures = [
            self.query_one(f"#chart-{name}", Chart).figure for name in self.chart_names() if name != "memory"
        ]
        return [x for figure in figures[:1] for x in (figure.x, *(o.x for o in figure.others)) if len(x)]

    def action_zoom(self, factor: float) -> None:
        if axes := self._axes():
            self._look(zoom(self.chart_view, axes, factor))

    def action_pan(self, direction: int) -> None:
        if axes := self._axes():
            self._look(pan(self.chart_view, axes, direction))

    def action_whole(self) -> None:
        self._look(replace(self.chart_view, span=None, stop=None))

    def action_logarithmic(self) -> None:
        self._look(replace(self.chart_view, log=not self.chart_view.log))

    def action_smooth(self) -> None:
        self._look(replace(self.chart_view, smooth=not self.chart_view.smooth))

    def action_axis(self) -> None:
        names = [name for name, _ in AXES]
        after = names[(names.index(self.chart_view.axis) + 1) % len(names)]
        self.chart_view = replace(self.chart_view, axis=after, span=None, stop=None)
        self.notify(f"Charts by {dict(AXES)[after]}.", markup=False, timeout=2)
        self.ask_charts()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("zoom", "pan", "whole", "logarithmic", "smooth", "figure", "axis", "compare"):
            return self.panes != "log"
        if action in JOB_ACTIONS:
            return not self.full
        return super().check_action(action, parameters)


def empty_charts() -> list[Chart]:
    """One chart for each figure; which are shown is decided by the room."""
    return [Chart(Figure(n, title, unit, waiting="Reading…"), id=f"chart-{n}") for n, title, unit in FIGURES]
