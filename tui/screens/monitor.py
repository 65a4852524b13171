"""Owns the monitor of one run: state, progress, charts against the prediction, statistics and the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.worker import get_current_worker

from gpt_tune.errors import UserError
from tui.poller import newest
from tui.scene import CHARTS, Camera, Scene, Shot, first_scene, take
from tui.screens.base import Page, trail
from tui.tasks import Tasks
from tui.widgets.chart import Chart
from tui.widgets.lines import Lines
from tui.widgets.logpane import LogPane
from tui.widgets.paint import Line, squeeze
from tui.widgets.plot import ChartData
from tui.widgets.words import plural

if TYPE_CHECKING:
    from gpt_tune.ledger.record import RunRecord

POLL_SECONDS = 0.5  # files only; the scheduler is asked by the app's own poller


@dataclass
class ShotTaken(Message):
    """Posted by the following thread, once a poll that brought something."""

    shot: Shot


@dataclass
class FollowFailed(Message):
    """The log cannot be followed."""

    error: UserError


class Monitor(Tasks, Page):
    """Reads the run's files through the engine's Watch in one thread; shows what comes back."""

    CSS_PATH = "../styles/monitor.tcss"
    AUTO_FOCUS = "LogPane"
    HELP_TEXT = (
        "Charts: the measured value as dots, the prediction as a line and its interval dashed.\n"
        "The log stays at its end until you scroll up; f goes back to the end."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "find", "Find", key_display="/", tooltip="Find text in the log; n and N go on"),
        Binding("e", "first_error", "First error", tooltip="Jump to the first error in the log"),
        Binding("c", "cancel", "Cancel job", tooltip="Cancel the job, after a question"),
        Binding(
            "R", "resubmit", "Resubmit", tooltip="Review the same run again, with the cure where one is known"
        ),
        Binding("s", "save", "Save", tooltip="Save this run's choices as a profile"),
        Binding("w", "panes", "Panes", tooltip="Show other charts, or only charts, or only the log"),
    ]

    WANTS_JOBS = True

    def __init__(self, record: RunRecord) -> None:
        super().__init__()
        self.record = record
        self.scene = first_scene(record)
        self._reason = ""
        self._stop = Event()
        self._redraw = True
        self._view = 0
        self._saw_last_step = False

    def path(self) -> Line:
        return trail(["Runs", self.record.name], 1)

    def body(self) -> ComposeResult:
        yield Lines(id="job")
        with Horizontal(id="charts"):
            for name, title in CHARTS:
                yield Chart(ChartData(title, empty="waiting for the first step"), id=f"chart-{name}")
        yield Lines(id="stats")
        yield Lines(id="log-title")
        yield LogPane(id="log")

    def on_mount(self) -> None:
        super().on_mount()
        self.show_scene()
        self._follow()
        self.tune.refresh_jobs()

    def on_unmount(self) -> None:
        self._stop.set()

    def on_resize(self, event: events.Resize) -> None:
        self._redraw = True
        self.call_after_refresh(self._show_log_title)

    # --- reading

    @work(thread=True, exclusive=True, group="follow", name="follow", exit_on_error=False)
    def _follow(self) -> None:
        """In a thread until the screen goes."""
        try:
            self._poll_files()
        except UserError as error:
            self.post_message(FollowFailed(error))

    def _poll_files(self) -> None:
        """Poll; one message a poll, none when nothing changed."""
        worker = get_current_worker()
        status_of = self.tune.engine.records.status_of
        watch = self.tune.engine.watch_of(self.record, lambda: status_of(self.record))
        before: Scene | None = None
        camera = Camera()
        record = self.record
        while not worker.is_cancelled:
            if self.record is not record:  # the poller has news
                record = self.record
                watch.set_status(status_of(record))
            redraw, self._redraw = self._redraw, False
            columns = max(self.size.width // 2, 20)
            shot = take(watch, record, columns, self._reason, redraw, camera)
            if shot.lines or shot.charts or shot.scene != before:
                before = shot.scene
                self.post_message(ShotTaken(shot))
            if self._stop.wait(POLL_SECONDS):
                return

    def on_shot_taken(self, event: ShotTaken) -> None:
        event.stop()
        shot = event.shot
        self.scene = shot.scene
        with self.app.batch_update():
            log = self.query_one(LogPane)
            log.add(shot.lines)
            log.mark(self.scene.excerpt)
            for name, data in shot.charts.items():
                self.query_one(f"#chart-{name}", Chart).show(data)
            self.show_scene()

    def on_follow_failed(self, event: FollowFailed) -> None:
        event.stop()
        self.task_failed(event.error)

    def show_records(self, records: Sequence[RunRecord]) -> None:
        """Called by the app when its poller has news; the following thread reads the new record."""
        record = newest(records, self.record.run_id)
        if record is not None:
            self._reason = self.tune.engine.jobs.reason_text(record)
            self.record = record

    def task_failed(self, error: UserError) -> None:
        """The log cannot be followed: that stays on the screen, because nothing else will come."""
        self.scene = replace(self.scene, note=[("! ", "bad"), (str(error), "bad")])
        self.show_scene()

    # --- showing

    def show_scene(self) -> None:
        job = squeeze(self.scene.job, max(self.size.width - 2, 1))
        lines: list[Line] = [job, self.scene.note] if self.scene.note else [job]
        self.query_one("#job", Lines).show(lines)
        self.query_one("#stats", Lines).show(self.scene.stats)
        self._show_log_title()
        if self.scene.all_steps and not self._saw_last_step:
            self._saw_last_step = True
            self.tune.refresh_jobs()  # the job is about to end: ask soon instead of at the usual pace

    def _show_log_title(self) -> None:
        log = self.query_one(LogPane)
        state = "follow" if log.follow else "paused: f follows"
        line: Line = [("── log ── ", "muted"), (state, "good" if log.follow else "warn")]
        if log.unseen:
            line = [*line, (f" ── {log.unseen:,} new lines", "accent")]
        if log.dropped:
            line = [*line, (f" ── {log.dropped:,} older lines not held", "muted")]
        if log.searching:
            line = [*line, (f" ── find {log.searching!r} (n next, N previous)", "accent")]
        hidden = sum(not chart.display for chart in self.query(Chart))
        if hidden:
            line = [*line, (f" ── {plural(hidden, 'pane')} hidden, press w", "muted")]
        self.query_one("#log-title", Lines).show([line])

    @on(LogPane.Moved)
    def _moved(self, event: LogPane.Moved) -> None:
        event.stop()
        self._show_log_title()

    def action_panes(self) -> None:
        """Cycle: charts and log, the other charts, charts only, log only."""
        views = ("", "-others", "-charts-only", "-log-only")
        self._view = (self._view + 1) % len(views)
        for name in views[1:]:
            self.set_class(name == views[self._view], name)
        self.call_after_refresh(self._show_log_title)

    # --- acting

    def action_find(self) -> None:
        from tui.screens.dialogs import Ask

        log = self.query_one(LogPane)
        self.app.push_screen(Ask("Find in the log:", log.searching), self._find)

    def _find(self, wanted: str | None) -> None:
        log = self.query_one(LogPane)
        count = log.search(wanted or "")
        if wanted and not count:
            self.notify(f"No line contains {wanted!r}.", markup=False)
        self._show_log_title()

    def action_first_error(self) -> None:
        """Jump to the line of the root cause, or say that there is none."""
        if not self.scene.excerpt:
            self.notify("No error found in this log.", markup=False)
        elif not self.query_one(LogPane).go_to_text(self.scene.excerpt):
            self.notify(f"Not among the lines held here: {self.scene.finding}", markup=False)

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
