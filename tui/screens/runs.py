"""Owns the list of runs: live ones on top, ended ones with why they ended; Enter opens the monitor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui.screens.base import Page, trail
from tui.states import ago, state_cell
from tui.tasks import Tasks
from tui.widgets.columns import Column
from tui.widgets.lines import Lines
from tui.widgets.paint import Cell, Line
from tui.widgets.rows import Row, RowList

if TYPE_CHECKING:
    from gpt_tune.errors import UserError
    from gpt_tune.ledger.record import RunRecord

COLUMNS = (
    Column("state", least=9),
    Column("name", most=28),
    Column("job", drop=1),
    Column("where", drop=3),
    Column("GPUs", "right", drop=2),
    Column("steps", "right", drop=4),
    Column("when", drop=1),
    Column("why", grow=True, drop=2, least=10),
)


class Runs(Tasks, Page):
    """What the ledger knows; the state of live runs comes from the app's one poller."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "refresh", "Ask now", tooltip="Ask the scheduler now"),
        Binding("c", "cancel", "Cancel job"),
        Binding("a", "again", "Run again", tooltip="Start the wizard with this run's choices"),
    ]
    CSS = "Runs > #said { height: auto; max-height: 3; margin: 1 1 0 1; } Runs > #runs { margin: 1 0; }"
    KEY_WORDS: ClassVar[dict[str, str]] = {"choose": "Monitor"}
    HELP_TEXT = "Every run started from here. Enter shows its log and charts, also after it has ended."

    WANTS_JOBS = True

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[str, RunRecord] = {}

    def path(self) -> Line:
        return trail(["Runs"], 0)

    def body(self) -> ComposeResult:
        yield Lines([[("Reading…", "muted")]], id="said", indent=2)
        yield RowList(COLUMNS, id="runs", empty="no runs yet: New run on the first screen starts one")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#runs").focus()
        self.run_task("read", self.tune.engine.runs, self.show_records)
        self.tune.refresh_jobs()

    def show_records(self, records: Sequence[RunRecord]) -> None:
        """Show these runs; also called by the app whenever the poller has news."""
        self._records = {r.run_id: r for r in records}
        reason = self.tune.engine.jobs.reason_text
        ordered = sorted(records, key=lambda r: not r.active)  # stable: newest first within each
        self.query_one("#runs", RowList).show_rows([Row(r.run_id, run_cells(r, reason(r))) for r in ordered])
        live = sum(r.active for r in records)
        said: Line = [
            (f"{live} live", "good" if live else "muted"),
            (f", {len(records) - live} ended", "muted"),
        ]
        self.query_one("#said", Lines).show([[*said, ("  ·  ", "muted"), *self.tune.poll_words()]])

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.tune.open("monitor", self._records[event.key])

    def _current(self) -> RunRecord | None:
        return self._records.get(self.query_one("#runs", RowList).key or "")

    def action_refresh(self) -> None:
        self.tune.refresh_jobs(force=True)

    def action_cancel(self) -> None:
        record = self._current()
        if record is not None:
            self.tune.ask_cancel(record)

    def action_again(self) -> None:
        record = self._current()
        if record is not None:
            self.tune.begin_from_run(record)

    def task_failed(self, error: UserError) -> None:
        self.query_one("#said", Lines).say(str(error), "bad")


def run_cells(record: Any, reason: str) -> tuple[Cell, ...]:
    where = (
        f"{record.cluster}/{record.partition}"
        if record.partition and record.cluster != "local"
        else record.cluster
    )
    return (
        state_cell(record.state),
        record.name,
        record.job_id or "-",
        where,
        str(record.gpus or "-"),
        "-" if record.last_iteration is None else f"{record.last_iteration:,}",
        ago(record.ended_at or record.started_at or record.submitted_at or record.created_at),
        [(reason, "muted")],
    )
