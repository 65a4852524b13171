"""Owns the thread that follows a run's files: it polls the engine's Watch and posts what changed. It touches no widget.

What the screen wants to see is put into `asked`; the thread looks at it before each poll, and is woken for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any

from textual.message import Message

from gpt_tune.logs.filter import LineFilter, parse_filter
from gpt_tune.logs.fold import Folder
from tui.figures import Camera, figures
from tui.scene import Scene, scene_of, waiting
from tui.widgets.chart_data import Figure
from tui.widgets.logstore import Entry, entry_of

if TYPE_CHECKING:
    from gpt_tune.ledger.record import RunRecord
    from gpt_tune.schedulers.base import JobStatus
    from gpt_tune.workflows.nodes.rows import NodeRow
    from gpt_tune.workflows.nodes.sampling import Sampling
    from gpt_tune.workflows.watch import LogLine, Watch, WatchUpdate

POLL_SECONDS = 0.5  # files only; the scheduler is asked by the app's own poller


@dataclass(frozen=True, slots=True)
class Asked:
    """What the screen wants. charts: names of the figures in view. turn: counts up when charts must come at once.
    filter: the text of the log's filter. older: how often lines above the first one were asked for."""

    charts: tuple[str, ...] = ()
    axis: str = "iteration"
    turn: int = 0
    filter: str = ""
    older: int = 0
    others: tuple[Any, ...] = ()
    nodes: bool = False
    judged: int = 0  # counts up when the user has said something of a finding


@dataclass(frozen=True, slots=True)
class Older:
    """Lines before the oldest ones. start: the beginning of the files is reached."""

    lines: tuple[Entry, ...]
    start: bool


@dataclass(frozen=True, slots=True)
class Shot:
    """One poll: new log lines (judged by the filter of that text), the scene, and the charts that changed.
    nodes: while the node view is on screen; sampler: why it has no samples."""

    lines: tuple[Entry, ...]
    filter: str
    scene: Scene
    charts: dict[str, Figure] = field(default_factory=dict)
    older: Older | None = None
    update: WatchUpdate | None = None
    nodes: tuple[NodeRow, ...] | None = None
    sampler: str = ""


@dataclass
class ShotTaken(Message):
    """Posted by the following thread, once a poll that brought something."""

    shot: Shot


class Reader:
    """Log lines to entries: read once, folded and judged on the way."""

    def __init__(self) -> None:
        self._folder = Folder()
        self._filter: LineFilter | None = None
        self.filter_text = ""
        self._older = 0

    def use_filter(self, text: str) -> None:
        """A filter of its own: patterns keep state and are not shared between threads."""
        if text != self.filter_text:
            self.filter_text = text
            self._filter = parse_filter(text) if text else None

    def read(self, update: WatchUpdate) -> tuple[Entry, ...]:
        entries = [self._entry(line, self._folder, 0) for line in update.lines if not line.transient]
        if update.skipped_lines:
            alarms = sum(line.apart for line in update.lines)
            but = f", but all their {alarms:,} warnings and errors" if alarms else ""
            entries.insert(0, entry_of(f"… {update.skipped_lines:,} lines not shown{but} …"))
        return tuple(entries)

    def read_older(self, lines: Sequence[LogLine]) -> tuple[Entry, ...]:
        """Folded among themselves: what came later was folded without them."""
        self._older += 1
        folder = Folder()
        return tuple(
            self._entry(line, folder, -self._older * 1_000_000_000) for line in lines if not line.transient
        )

    def _entry(self, line: LogLine, folder: Folder, base: int) -> Entry:
        entry = entry_of(line.text, line.source, line.number if line.apart else None)
        index, entry.words = folder.join(entry.facts, line.source)
        entry.fold = base + index
        entry.wanted = self._filter is None or self._filter.matches(entry.facts)
        return entry


class Following:
    """Polls until told to stop. `record` and `asked` are replaced by the screen; both are read once a poll."""

    def __init__(
        self,
        record: RunRecord,
        watch: Watch,
        status_of: Callable[[RunRecord], JobStatus],
        judgements_of: Callable[[str], Any],
        post: Callable[[Message], object],
        charts: tuple[str, ...] = (),
    ) -> None:
        self.record = record
        self.reason = ""
        self.asked = Asked(charts)
        self.sampling: Sampling | None = None  # of the node view, once there is one
        self.watch = watch
        self._status_of = status_of
        self._judgements_of = judgements_of
        self._post = post
        self._wake = Event()
        self._over = False
        self._reader = Reader()
        self._camera = Camera()

    def ask(self, **changes: Any) -> None:
        """Show something else; the thread is woken for it."""
        self.asked = replace(self.asked, **changes)
        self._wake.set()

    def stop(self) -> None:
        self._over = True
        self._wake.set()

    def run(self) -> None:
        """In the thread."""
        before: Scene | None = None
        record, asked = self.record, self.asked
        try:
            while not self._over:
                if self.record is not record:  # the poller has news
                    record = self.record
                    self.watch.set_status(self._status_of(record))
                last, asked = asked, self.asked
                if asked.judged != last.judged:
                    self.watch.set_judgements(self._judgements_of(record.run_id))
                shot = self._take(asked, last)
                if shot.lines or shot.charts or shot.older or shot.nodes or shot.scene != before:
                    before = shot.scene
                    self._post(ShotTaken(shot))
                self._wake.wait(POLL_SECONDS)
                self._wake.clear()
        finally:
            close = getattr(self.watch, "close", None)
            if close is not None:
                close()

    def _take(self, asked: Asked, last: Asked) -> Shot:
        self._reader.use_filter(asked.filter)
        update = self.watch.poll()
        scene = scene_of(self.watch, update, self.record, self.reason)
        anew = (asked.axis, asked.turn, asked.others) != (last.axis, last.turn, last.others)
        names = asked.charts
        more = tuple(name for name in names if name not in last.charts)
        charts: dict[str, Figure] = {}
        due = self._camera.due(update, anew)
        if due or more:
            words = waiting(self.watch, update, self.reason)
            charts = figures(self.watch, update, names if due else more, asked.axis, words, asked.others)
        return Shot(
            self._reader.read(update),
            asked.filter,
            scene,
            charts,
            self._older() if asked.older != last.older else None,
            update,
            *self._nodes(asked),
        )

    def _nodes(self, asked: Asked) -> tuple[tuple[NodeRow, ...] | None, str]:
        """Rows of the node view while it is on screen, and why there are no samples."""
        if not asked.nodes:
            return None, ""
        samples = self.sampling.poll() if self.sampling is not None else {}
        return tuple(
            self.watch.nodes(samples=samples)
        ), self.sampling.problem if self.sampling is not None else ""

    def _older(self) -> Older:
        lines: list[LogLine] = []
        for source in self.watch.sources:
            lines += self.watch.older_lines(source)
        return Older(self._reader.read_older(lines), not lines)
