"""Owns the node view of a run: one row a node from its log, and on request what a sampler says of its GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gpt_tune.errors import UserError
from tui.node_rows import COLUMNS, detail_lines, summary_line, table
from tui.screens.base import Page, trail
from tui.tasks import Tasks
from tui.widgets.lines import Lines
from tui.widgets.paint import Line
from tui.widgets.rows import RowList

if TYPE_CHECKING:
    from gpt_tune.workflows.nodes.rows import NodeRow
    from gpt_tune.workflows.nodes.sampling import Sampling
    from tui.screens.monitor import Monitor
    from tui.screens.monitor_follow import Shot

COST = "one small process a node in one step of the job, under 1 % of a core; it ends with the job"


class Nodes(Tasks, Page):
    """Shows what the monitor's following thread brings; it is the one that reads."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sample", "Sample GPUs", tooltip=f"Start the sampler: {COST}"),
        Binding("S", "stop", "Stop sampling", tooltip="End the sampler on every node"),
    ]
    CSS = """
    Nodes > #said { height: auto; max-height: 3; margin: 0 1; }
    Nodes > #nodes { height: 1fr; margin: 1 0 0 0; }
    Nodes > #detail { height: auto; max-height: 40%; margin: 1 1 0 1; }
    Nodes.-short > #detail { display: none; }
    """
    KEY_WORDS: ClassVar[dict[str, str]] = {"choose": "Its log"}
    HELP_TEXT = (
        "One row for each node: what its ranks last said, how far behind it is, and who is silent.\n"
        f"s starts a sampler for GPU figures: {COST}. Enter shows only the log of that node."
    )
    WANTS_JOBS = True

    def __init__(self, monitor: Monitor) -> None:
        super().__init__()
        self._monitor = monitor
        self._rows: dict[str, NodeRow] = {}
        self._said = ""

    def path(self) -> Line:
        return trail(["Runs", self._monitor.record.name, "Nodes"], 2)

    def body(self) -> ComposeResult:
        yield Lines([[("Reading…", "muted")]], id="said")
        yield RowList(COLUMNS, id="nodes", empty="The log names no node, and the scheduler gave none yet.")
        yield Lines(id="detail", indent=2)

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#nodes").focus()
        self._monitor.listeners.append(self._heard)
        following = self._monitor.following
        if following is not None:
            following.ask(nodes=True)
            if following.sampling is None:
                sampling, record = self.tune.engine.sampling, self._monitor.record
                self.run_task("attach", lambda: sampling.attach(record), self._attached, self._no_matter)

    def on_unmount(self) -> None:
        self._monitor.listeners.remove(self._heard)
        if self._monitor.following is not None:
            self._monitor.following.ask(nodes=False)

    def _heard(self, shot: Shot) -> None:
        if shot.nodes is None:
            return
        self._rows = {row.node: row for row in shot.nodes}
        self._said = shot.sampler
        columns, rows = table(shot.nodes)
        self.query_one("#nodes", RowList).show_rows(rows, columns=columns)
        self.query_one("#said", Lines).show(summary_line(shot.nodes, shot.sampler))
        self._show_detail()

    @on(RowList.Highlighted)
    def _moved(self, event: RowList.Highlighted) -> None:
        event.stop()
        self._show_detail()

    def _show_detail(self) -> None:
        row = self._rows.get(self.query_one("#nodes", RowList).key or "")
        self.query_one("#detail", Lines).show(detail_lines(row) if row is not None else [])

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self._monitor.use_filter(f"node:{event.key}")
        self.app.pop_screen()

    # --- sampling

    def action_sample(self) -> None:
        sampling, record = self.tune.engine.sampling, self._monitor.record
        self.query_one("#said", Lines).say(f"Starting the sampler: {COST}…", "muted")
        self.run_task("sample", lambda: sampling.start(record), self._attached)

    def _attached(self, sampling: Sampling) -> None:
        if self._monitor.following is not None:
            self._monitor.following.sampling = sampling
            self._monitor.following.ask(nodes=True, turn=self._monitor.following.asked.turn + 1)

    def _no_matter(self, error: UserError) -> None:
        """Nobody asked for samples: that they cannot be read is said when somebody does."""

    def action_stop(self) -> None:
        following = self._monitor.following
        if following is None or following.sampling is None:
            self.notify("No sampler was started from here.", markup=False)
            return
        self.run_task(
            "stop", following.sampling.stop, lambda _: self.notify("The samplers end now.", markup=False)
        )

    def task_failed(self, error: UserError) -> None:
        self.query_one("#said", Lines).show([[("! ", "bad"), (str(error), "bad")]])
