"""Owns watching one run: log lines, steps, job state, and what follows from them. Every monitor shows only this."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from gpt_tune.diagnosis.judged import Judgements
from gpt_tune.diagnosis.types import Diagnosis, Finding
from gpt_tune.logs.columns import Floats
from gpt_tune.logs.follow import Batch, Follower, LocalReader, Reader
from gpt_tune.logs.formats.taught import more_formats
from gpt_tune.logs.parser import LogParser
from gpt_tune.logs.summary import Summary, summarise
from gpt_tune.logs.types import Step
from gpt_tune.models.shape import ModelShape
from gpt_tune.schedulers import hostlist
from gpt_tune.schedulers.base import ENDED, JobStatus
from gpt_tune.workflows.nodes.rows import NodeRow, node_rows, slow_nodes
from gpt_tune.workflows.nodes.samples import NodeSample
from gpt_tune.workflows.series import ChartMark, Drawn, marks
from gpt_tune.workflows.watching.axes import AXES, FIGURES, axis_of
from gpt_tune.workflows.watching.hang import Hang, judge_hang
from gpt_tune.workflows.watching.history import History
from gpt_tune.workflows.watching.pace import Pace, Prediction, Recent, pace_of, recent_of
from gpt_tune.workflows.watching.readers import Readers
from gpt_tune.workflows.watching.slowness import judge_slowness, own_past, with_slowness
from gpt_tune.workflows.watching.update import LogLine, WatchUpdate, newest, pane_lines
from gpt_tune.workflows.watching.writers import Writer, Writers

__all__ = ["AXES", "FIGURES", "Hang", "LogLine", "Pace", "Prediction", "Watch", "WatchUpdate", "Writer"]

MAX_NEW_LINES = 2000  # handed on per poll; a screen cannot show more, the parser sees all
MAX_NEW_ALARMS = 10_000  # warnings and errors handed on beside them
MAX_KEPT_LINES = 5000
HISTORY_SECONDS = 0.15  # spent per poll on the log's past
STATE_SECONDS = 10.0  # between two questions to the state source
KEEP_SECONDS = 5.0  # between two notes of progress
SUMMARY_SECONDS = 2.0  # between two summaries of a long run
LONG_RUN_STEPS = 20_000


class Watch:
    """Follows the log files of one run. Call `poll` about twice a second, always from the same thread."""

    def __init__(
        self,
        log_paths: Sequence[str | Path],
        prediction: Prediction | None = None,
        shape: ModelShape | None = None,
        gpus: int | None = None,
        state_source: Callable[[], JobStatus | None] | None = None,
        *,
        seq_length: int | None = None,
        global_batch_size: int | None = None,
        peak_tflops: float | None = None,
        run_id: str | None = None,
        reader: Reader | None = None,
        clock: Callable[[], float] = time.time,
        state_seconds: float = STATE_SECONDS,
        history_seconds: float = HISTORY_SECONDS,
        keep: Callable[[WatchUpdate], None] | None = None,
        log_format: str = "auto",
        log_says_gpus: bool = False,
    ) -> None:
        """gpus: 0 for a run without any, None when only the log can say.
        log_says_gpus: the speed is divided by the log's number of GPUs; `gpus` is only what the job holds.

        peak_tflops: the GPU's dense peak in the run's precision; None refuses MFU.
        state_source may talk to the scheduler: it is asked at most every state_seconds. keep: called with an
        update worth keeping with the run (new findings, progress every few seconds, the end). log_format: `auto`,
        or a line that the user taught (see logs.formats.taught).
        """
        self.prediction = prediction
        self.run_id = run_id
        self.peak_tflops = peak_tflops
        self._gpus = gpus
        self._reader: Reader = reader or LocalReader()
        self._clock = clock
        self._follower = Follower(log_paths, self._reader)
        self._state_source = state_source
        self._state_seconds = state_seconds
        self._keep = keep
        self._history_seconds = history_seconds
        self._status: JobStatus | None = None
        self._asked = float("-inf")
        self._changed = False
        # `main` reads everything in order; `tail` shows the end while main still reads the past.
        known = (shape, None if log_says_gpus else gpus or None, seq_length, global_batch_size)
        self._main, self._tail = (Readers(LogParser(*known, more_formats(log_format))) for _ in range(2))
        self._history: dict[str, History] = {}
        self._line_numbers: dict[str, int] = {}
        self._placed = 0  # files whose writers the readers have been told
        self._first_numbers: dict[int, int] = {}  # of the lines of each batch of this poll, by its id
        self._lines: deque[LogLine] = deque(maxlen=MAX_KEPT_LINES)
        self._seen: set[tuple[str, int | None, str]] = set()
        self._moved = clock()
        self._summary = Summary()
        self._summarised: tuple[float, LogParser, int] | None = None
        self._recents: tuple[tuple[object, ...], Recent, tuple[float, float, int] | None] | None = None
        self._finished = False
        self._judged = Diagnosis("unknown")
        self._writers = Writers()
        self._kept_at = float("-inf")
        self._kept_iteration: int | None = None

    # -- polling -----------------------------------------------------------------------------------

    def poll(self) -> WatchUpdate:
        """Reads what is new, for a bounded time, and judges it."""
        changed = self._ask_state()
        self._first_numbers = {}
        batches = self._follower.poll()
        steps = self._take(batches)
        written = {path: s.modified for path, s in self._follower.sources.items()}
        self._writers.note(batches, self._clock(), written)
        self._read_history()
        # A reader that has lost its connection cannot know whether it has read everything.
        cut_off = getattr(self._reader, "problem", None) is not None
        over = self.state in ENDED and not (self._follower.behind or self._reading_history or cut_off)
        if over and not self._finished and _has_all(self._reader):
            rest = self._follower.flush()
            steps += self._take(rest) + self._main.parser.finish()
            batches += rest
            self._finished = True
        update = self._update(batches, steps, changed)
        self._offer(update)
        return update

    def _offer(self, update: WatchUpdate) -> None:
        if self._keep is None:
            return
        now = self._clock()
        iteration = update.pace.iteration
        progress = iteration != self._kept_iteration and now - self._kept_at >= KEEP_SECONDS
        if update.new_findings or progress or (update.ended and iteration != self._kept_iteration):
            self._kept_at, self._kept_iteration = now, iteration
            self._keep(update)

    def close(self) -> None:
        """End what the reader of files elsewhere holds open."""
        close = getattr(self._reader, "close", None)
        if close is not None:
            close()

    def set_judgements(self, judgements: Judgements) -> None:
        """What the user says of findings, by id; it holds from the next poll on."""
        for readers in (self._main, self._tail):
            readers.diagnoser.judgements = dict(judgements)

    def set_status(self, status: JobStatus | None) -> None:
        """Takes a job state that somebody else has asked for."""
        self._note_status(status)

    def _note_status(self, status: JobStatus | None) -> None:
        before = self.state
        self._status = status or self._status
        if before != "RUNNING" and self.state == "RUNNING":
            self._moved = self._clock()  # waiting in the queue is not silence
        self._changed = self._changed or self.state != before
        if self._status is not None and self._status.node_list:
            names = hostlist.expand(self._status.node_list)
            for readers in (self._main, self._tail):
                readers.parser.rank_times.place(names, self._gpus)

    def _update(self, batches: list[Batch], steps: list[Step], changed: bool) -> WatchUpdate:
        now = self._clock()
        if steps:
            self._moved = now
        front = self._front
        parser = front.parser
        summary = self._summarise(parser, now)
        recent, own = self._recent(parser)
        gpus = self._gpus if self._gpus is not None else parser.facts.gpus
        pace = pace_of(recent, summary, self._status, self.peak_tflops, gpus, self.prediction, now)
        hang = judge_hang(
            self.state,
            recent.last,
            summary.median_step_time_ms,
            self._moved,
            now,
            self._writers.silent(self._moved, gpus or parser.facts.gpus),
        )
        reason = self._status.reason if self._status is not None else ""
        code = self._status.exit_code if self._status is not None else None
        diagnosis = front.diagnoser.conclude(parser, self.state, hang is not None, reason, code)
        slow = judge_slowness(own, parser, pace, self.prediction, diagnosis)
        diagnosis = with_slowness(diagnosis, slow, self._main.diagnoser.judgements)
        self._judged = diagnosis
        lines = [line for batch in batches for line in pane_lines(batch, self._first_numbers.get(id(batch)))]
        shown = newest(lines, MAX_NEW_LINES, MAX_NEW_ALARMS)
        self._lines.extend(shown)
        return WatchUpdate(
            lines=tuple(shown),
            skipped_lines=len(lines) - len(shown),
            steps=tuple(steps),
            state=self.state,
            state_changed=changed,
            status=self._status,
            summary=summary,
            pace=pace,
            diagnosis=diagnosis,
            new_findings=self._unseen(diagnosis),
            hang=hang,
            last_step=recent.last,
            memory=tuple(parser.memory),
            history=self._history_share,
            behind=self._follower.behind,
            waiting=tuple(p for p, s in self._follower.sources.items() if s.waiting),
            reset=any(batch.reset for batch in batches),
            ended=self._finished,
        )

    @property
    def state(self) -> str:
        """The scheduler's word for the job, UNKNOWN without a scheduler."""
        return self._status.state if self._status is not None else "UNKNOWN"

    def _ask_state(self) -> bool:
        """Asks for the job's state when it is time to; whether it changed since the last poll."""
        now = self._clock()
        due = now - self._asked >= self._state_seconds
        if self._state_source is not None and due and not self._finished:
            self._asked = now
            self._note_status(self._state_source())
        changed, self._changed = self._changed, False
        return changed

    def _take(self, batches: list[Batch]) -> list[Step]:
        steps: list[Step] = []
        if len(self.sources) != self._placed:
            self._placed = len(self.sources)
            for readers in (self._main, self._tail):
                readers.place(self.sources)
            self._writers.place(self.sources)
        for batch in batches:
            path = batch.source
            if batch.reset:
                self._history.pop(path, None)
                self._line_numbers[path] = 1
                self._main.parser.begin_run(path)
                continue
            if path not in self._line_numbers and path not in self._history:
                self._open(path, batch)
            if path in self._history:
                self._tail.feed(batch, None)
                continue
            first = self._first_numbers[id(batch)] = self._line_numbers[path]
            self._line_numbers[path] = first + batch.raw.count(b"\n")
            steps += self._main.feed(batch, first)
        return steps

    def _open(self, path: str, batch: Batch) -> None:
        if batch.offset <= 0:
            self._line_numbers[path] = 1
            return
        self._history[path] = history = History(self._follower.sources[path], self._reader)
        # The beginning says what the run is: shape, layout, number of iterations.
        past = history.next()
        self._main.feed_block(past.block, path, past.first_line)
        self._tail.parser.learn(self._main.parser.arguments)

    def _read_history(self) -> None:
        """Goes on with the past of each file for a bounded time."""
        until = time.monotonic() + self._history_seconds
        for path, history in list(self._history.items()):
            while not history.done and time.monotonic() < until:
                past = history.next()
                self._main.feed_block(past.block, path, past.first_line)
            if history.done:
                self._line_numbers[path] = history.line
                del self._history[path]

    # -- views -------------------------------------------------------------------------------------

    def series(self, name: str, axis: str = "iteration") -> tuple[Floats, Floats]:
        """One of FIGURES of all standing steps against one of AXES; NaN where nothing was printed.

        While the log's past is still being read: what is read of it, then the newest steps.
        """
        x, y = self._axis(self._main.parser, name, axis)
        if self._reading_history and axis != "hours":
            newest_x, newest_y = self._axis(self._tail.parser, name, axis)
            if len(newest_x):
                keep = x < newest_x[0]
                x, y = np.concatenate((x[keep], newest_x)), np.concatenate((y[keep], newest_y))
        return x, y

    def _axis(self, parser: LogParser, name: str, axis: str) -> tuple[Floats, Floats]:
        return axis_of(parser.best, parser.facts, name, axis, self.peak_tflops)

    def drawn(self, name: str | None = None) -> Drawn:
        """This run for a chart of several (see workflows.series)."""
        parser = self._main.parser
        return Drawn(name or self.run_id or "this run", parser.best, parser.facts, self.peak_tflops)

    def marks(self, axis: str = "iteration") -> list[ChartMark]:
        """Checkpoints, restarts and warnings along the run."""
        return marks(self.drawn(), self._main.parser.events, self._judged.findings, axis)

    def recent_lines(self) -> list[LogLine]:
        """The newest lines kept, oldest first."""
        return list(self._lines)

    def older_lines(self, source: str) -> list[LogLine]:
        """The lines before the oldest ones handed on of this file; empty at its start."""
        batch = self._follower.older(source)
        return pane_lines(batch) if batch is not None else []

    def writers(self) -> list[Writer]:
        """Who has written since the watch began, by rank and host: the last line of each, and when it came."""
        return self._writers.listed()

    def nodes(
        self, names: Sequence[str] = (), samples: Mapping[str, NodeSample] | None = None
    ) -> list[NodeRow]:
        """One row a node. names: the job's nodes in rank order, "" the scheduler's; samples: of a sampler."""
        if not names and self._status is not None and self._status.node_list:
            names = hostlist.expand(self._status.node_list)
        gpus = self._gpus or self._front.parser.facts.gpus
        slow = slow_nodes(self._judged.findings)
        return node_rows(self._writers.listed(), self._clock(), names, gpus, samples, slow)

    @property
    def sources(self) -> list[str]:
        """The files followed."""
        return list(self._follower.sources)

    @property
    def parser(self) -> LogParser:
        """The parser whose steps are shown (for tables and exports)."""
        return self._front.parser

    @property
    def _reading_history(self) -> bool:
        return bool(self._history)

    @property
    def _front(self) -> Readers:
        return self._tail if self._reading_history and len(self._tail.parser.best) else self._main

    @property
    def _history_share(self) -> float:
        total = sum(s.offset for s in self._follower.sources.values())
        left = sum(self._follower.sources[p].offset - h.read for p, h in self._history.items())
        return 1.0 if total <= 0 or not self._history else 1.0 - left / total

    def _summarise(self, parser: LogParser, now: float) -> Summary:
        """The summary, made anew when steps came; for a long run not at every poll."""
        version = parser.best.version
        if self._summarised is not None:
            at, of, was = self._summarised
            wait = SUMMARY_SECONDS if len(parser.best) > LONG_RUN_STEPS and not self._finished else 0.0
            if of is parser and (was == version or now - at < wait):
                return self._summary
        self._summary = summarise(parser.best)
        self._summarised = (now, parser, version)
        return self._summary

    def _recent(self, parser: LogParser) -> tuple[Recent, tuple[float, float, int] | None]:
        """Figures of the newest steps, and whether they are slow, made anew only when something was read."""
        key = (parser, parser.best.version, len(parser.arguments), len(parser.memory))
        if self._recents is None or self._recents[0] != key:
            self._recents = key, recent_of(parser), own_past(parser)
        return self._recents[1:]

    def _unseen(self, diagnosis: Diagnosis) -> tuple[Finding, ...]:
        new = []
        for finding in diagnosis.findings:
            if finding.dismissed is not None:
                continue
            key = (finding.id, finding.rank, finding.source)
            if key not in self._seen:
                self._seen.add(key)
                new.append(finding)
        return tuple(new)


def _has_all(reader: Reader) -> bool:
    """Whether a reader of files elsewhere has been sent all of them."""
    has_all = getattr(reader, "has_all", None)
    return has_all is None or bool(has_all())
