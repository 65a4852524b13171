"""Owns the monitor of one run: state, progress, charts against the prediction, statistics and the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid
from textual.message import Message

from gpt_tune.errors import UserError
from tui.poller import newest
from tui.promptness import be_prompt
from tui.scene import first_scene, packed
from tui.screens.base import Page, trail
from tui.screens.monitor_charts import KEYS, NAMES, empty_charts
from tui.screens.monitor_compare import CompareKeys
from tui.screens.monitor_follow import Following, Shot, ShotTaken
from tui.screens.monitor_log import LogKeys
from tui.tasks import Tasks
from tui.widgets.chart_data import Figure
from tui.widgets.lines import Lines
from tui.widgets.logpane import LogPane
from tui.widgets.paint import Line, line_width, squeeze

if TYPE_CHECKING:
    from gpt_tune.ledger.record import RunRecord
    from gpt_tune.workflows.watch import WatchUpdate


@dataclass
class FollowFailed(Message):
    """The log cannot be followed."""

    error: UserError


class Monitor(Tasks, LogKeys, CompareKeys, Page):
    """Reads the run's files through the engine's Watch in one thread; shows what comes back."""

    CSS_PATH = "../styles/monitor.tcss"
    AUTO_FOCUS = "LogPane"
    HELP_TEXT = (
        "Charts: the measured value as dots, the prediction as a line and its interval dashed.\n"
        "The log stays at its end until you scroll up; f goes back to the end. Esc ends a search, a filter or a\n"
        "chart in full before it goes back. C R V ! above a chart: checkpoint, restart, validation, warning."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "findings", "Explain", tooltip="What broke, why, and what to do: every finding"),
        Binding("n,f4", "nodes", "Nodes", key_display="n", tooltip="One row for each node of the job"),
        Binding("c", "cancel", "Cancel job", tooltip="Cancel the job, after a question"),
        Binding(
            "R", "resubmit", "Resubmit", tooltip="Review the same run again, with the cure where one is known"
        ),
        Binding("s", "save", "Save", show=False, tooltip="Save this run's choices as a profile"),
        *KEYS,
    ]

    WANTS_JOBS = True

    def __init__(self, record: RunRecord) -> None:
        super().__init__()
        self.record = record
        self.scene = first_scene(record)
        self.newest: WatchUpdate | None = None
        self.following: Following | None = None
        self._figures: dict[str, Figure] = {}  # not shown yet
        self.listeners: list[Callable[[Shot], None]] = []  # screens above this one
        self._saw_last_step = False

    def path(self) -> Line:
        """Where this is, and at the right how the scheduler is asked and how often."""
        where = trail(["Runs", self.record.name], 1)
        said = self.tune.poll_words() if self.WANTS_JOBS else []
        room = self.size.width - 2 - line_width(where) - line_width(said)
        return [*where, (" " * room, ""), *said] if said and room >= 2 else where

    def body(self) -> ComposeResult:
        yield Lines(id="job")
        with Grid(id="charts"):
            yield from empty_charts()
        yield Lines(id="stats")
        yield Lines(id="log-title")
        yield LogPane(id="log")

    def on_mount(self) -> None:
        super().on_mount()
        be_prompt()
        self.show_scene()
        self._follow()
        self.tune.refresh_jobs()

    def on_unmount(self) -> None:
        if self.following is not None:
            self.following.stop()

    def on_resize(self, event: events.Resize) -> None:
        self.arrange_charts()
        self.call_after_refresh(self.show_log_title)

    # --- reading

    @work(thread=True, exclusive=True, group="follow", name="follow", exit_on_error=False)
    def _follow(self) -> None:
        """In a thread until the screen goes."""
        try:
            self._followed()
        except UserError as error:
            self.post_message(FollowFailed(error))

    def _followed(self) -> None:
        from gpt_tune.workflows.findings import judgements

        status_of = self.tune.engine.records.status_of
        watch = self.tune.engine.watch_of(self.record, lambda: status_of(self.record))
        following = Following(
            self.record, watch, status_of, judgements, self.post_message, self.chart_names()
        )
        following.reason = self.tune.engine.jobs.reason_text(self.record)
        self.following = following
        if self.is_attached:
            following.run()

    def on_shot_taken(self, event: ShotTaken) -> None:
        event.stop()
        shot = event.shot
        self.scene, self.newest = shot.scene, shot.update
        with self.app.batch_update():
            self.log_pane.add(shot.lines, shot.filter)
            if shot.older is not None:
                self.show_older(shot.older)
            self._figures.update(shot.charts)
            if not self.log_pane.still:
                self.draw_now()
            for listener in self.listeners:
                listener(shot)

    def draw_now(self) -> None:
        self.log_pane.mark(self.scene.cause.excerpt if self.scene.cause is not None else "")
        self.show_figures(self._figures)
        self._figures = {}
        self.show_scene()

    def on_screen_suspend(self) -> None:
        """Something stands above: what comes is kept, but not drawn, so that the other one has the time."""
        self.log_pane.hold_still(True)

    def on_screen_resume(self) -> None:
        self.log_pane.hold_still(False)
        self.draw_now()

    def on_follow_failed(self, event: FollowFailed) -> None:
        event.stop()
        self.task_failed(event.error)

    def show_records(self, records: Sequence[RunRecord]) -> None:
        """Called by the app when its poller has news; the following thread reads the new record."""
        record = newest(records, self.record.run_id)
        if record is not None:
            self.record = record
            if self.following is not None:
                self.following.record = record
                self.following.reason = self.tune.engine.jobs.reason_text(record)
        self.update_path()
        self.show_scene()

    def task_failed(self, error: UserError) -> None:
        """The log cannot be followed: that stays on the screen, because nothing else will come."""
        self.scene = replace(self.scene, note=[("! ", "bad"), (str(error), "bad")])
        self.show_scene()

    # --- showing

    def show_scene(self) -> None:
        width = max(self.size.width - 2, 1)
        lines: list[Line] = [squeeze(self.scene.job, width)]
        lines += [self.scene.note] if self.scene.note else []
        lines += [self.scene.chain] if self.scene.chain else []
        stale = self.tune.poll_words() if self.WANTS_JOBS else []
        lines += [[("! ", "bad"), *stale]] if any(role == "bad" for _, role in stale) else []
        self.query_one("#job", Lines).show(lines)
        rows = 1 if self.size.width >= 160 or self.size.height < 24 else 2
        self.query_one("#stats", Lines).show(packed(self.scene.stats, width, rows))
        self.show_log_title()
        if self.scene.all_steps and not self._saw_last_step:
            self._saw_last_step = True
            self.tune.refresh_jobs()  # the job is about to end: ask soon instead of at the usual pace

    def show_log_title(self) -> None:
        hidden = len(NAMES) - len(self.chart_names())
        more = f"{hidden} more charts (m), panes (w)" if hidden else "panes (w)"
        line = [*self.log_title(), (f" ── {more}", "muted")]
        self.query_one("#log-title", Lines).show([squeeze(line, self.size.width)])

    @on(LogPane.Moved)
    def _moved(self, event: LogPane.Moved) -> None:
        event.stop()
        self.show_log_title()

    # --- acting

    def text_to_copy(self) -> str:
        return "\n".join(self.log_pane.visible_lines())

    def action_back(self) -> None:
        """Esc ends what narrows the view first; then it goes back."""
        if self.full:
            self.action_one_chart()
        elif not self.end_narrowing():
            super().action_back()

    def action_findings(self) -> None:
        self.tune.open("findings", self)

    def action_nodes(self) -> None:
        self.tune.open("nodes", self)

    def action_cancel(self) -> None:
        self.tune.ask_cancel(self.record)

    def action_resubmit(self) -> None:
        """The run again: with the change that cures what broke, or as it was."""
        if self.scene.cured:
            self.tune.begin_cured(self.record)
        else:
            self.tune.begin_from_run(self.record)

    def action_save(self) -> None:
        """Save the run's choices as a profile."""
        self.tune.save_run(self.record)
