"""Owns the steps of a log: duplicates merged, resumed runs told from late lines, millions kept small."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpt_tune.logs.columns import Column, chunk_of_columns
from gpt_tune.logs.formats.base import BAR, TRAINER, Record
from gpt_tune.logs.placing import (
    contradicts,
    far_before,
    is_duplicate,
    is_late,
    long_pause,
    other_run,
)
from gpt_tune.logs.segment import Segment, fill, override, segment_steps
from gpt_tune.logs.types import Step
from gpt_tune.logs.views import StepViews

OPEN_ROWS = 1024  # rows kept as records before they are packed
MAX_AHEAD = 8  # steps that an engine is ahead of its trainer's own lines
MAX_LATE = 8192  # packed steps that were completed since, before their chunks are made anew
KEPT_OPEN = 256  # of those, the newest stay open: their other ranks' lines may still come


@dataclass(slots=True)
class _Stream:
    """One writer of one format: only its own order says whether a run went back."""

    segment: int
    last: int
    marks: int
    first: int = 0


class StepTable(StepViews):
    """All steps of a log. Each record is placed by `add`; views hide what a resumed run did again."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.siblings: dict[str, int] = {}  # files of ranks of one and the same job, and which attempt of it
        self.version = 0  # rises with every change, so that views can be cached
        self._streams: dict[Hashable, _Stream] = {}
        self._marks: dict[str, int] = {}
        self._label_marks: dict[tuple[str, str], int] = {}
        self._by_mark: dict[tuple[str, int], int] = {}
        self._stepped: dict[str, bool] = {}
        self._headed: set[str] = set()
        self._trained: set[str] = set()  # files with lines of the trainer itself
        self._resumed_from: int | None = None

    def __len__(self) -> int:
        return sum(len(s) for s in self.segments)

    @property
    def says_anything(self) -> bool:
        """Whether any step has a time or a loss: counters alone say little."""
        return any(
            s.chunks or any(r.step_time_ms is not None or r.loss is not None for r in s.rows.values())
            for s in self.segments
        )

    def mark_start(self, source: str, label: str | None) -> None:
        """A run begins in this file; label: only for this writer."""
        if label is None:
            if self._stepped.get(source):
                self._marks[source] = self._marks.get(source, 0) + 1
                self._stepped[source] = False
            self._headed.add(source)
        else:
            key = (source, label)
            self._label_marks[key] = self._label_marks.get(key, 0) + 1

    def mark_resumed(self, iteration: int | None) -> None:
        """A checkpoint was loaded: the next new segment resumes from it."""
        self._resumed_from = iteration

    def add(self, record: Record, source: str, label: str, kind: str) -> Step | None:
        """Places a record; the step it became part of, or None when it said nothing new."""
        step = record.step
        if record.fills:
            return self._fill(record)
        if record.priority >= TRAINER:
            self._trained.add(source)
        elif source in self._trained:
            return self._follow(record)
        key = (source, label, kind)
        marks = self._marks.get(source, 0) + self._label_marks.get((source, label), 0)
        stream = self._streams.get(key)
        if stream is None:
            segment = self._claim(record, source, marks)
            stream = self._streams[key] = _Stream(segment.index, step.iteration, marks, step.iteration)
        else:
            own = self.segments[stream.segment]
            goes_on = marks == stream.marks and step.iteration > stream.last
            if goes_on and self._other_after_all(own, record, source, kind):
                segment = self._fork(own, stream, source)
            else:
                segment = self._advance(record, stream, source, marks)
        segment.begun_by = segment.begun_by or (source, kind)
        stream.segment, stream.marks = segment.index, marks
        stream.last = step.iteration
        self._stepped[source] = True
        return self._place(segment, record)

    def position(self, source: str, label: str, kind: str) -> tuple[int, int | None, float | None] | None:
        """Where a writer stands: last iteration, total and time of its segment. None before its first step, and
        when anything but the next step is due."""
        stream = self._streams.get((source, label, kind))
        marks = self._marks.get(source, 0) + self._label_marks.get((source, label), 0)
        if stream is None or stream.marks != marks or stream.segment != len(self.segments) - 1:
            return None
        segment = self.segments[stream.segment]
        return max(segment.last, stream.last), segment.total, segment.last_time

    def run_of(self, source: str, label: str, kind: str) -> int:
        """The segment in which a writer stands."""
        stream = self._streams.get((source, label, kind))
        return stream.segment if stream is not None else 0

    def passes_over(self, columns: Mapping[str, Column], source: str, label: str, kind: str) -> bool:
        """Whether a rank's rows say nothing that another rank's file has not said; its writer goes on behind them."""
        stream = self._streams.get((source, label, kind))
        if source not in self.siblings or stream is None or stream.marks != self._marks.get(source, 0):
            return False
        if columns["iteration"][0][0] <= stream.last or not self.segments[stream.segment].covers(columns):
            return False
        stream.last = int(columns["iteration"][0][-1])
        self._stepped[source] = True
        return True

    def take_ahead(self, source: str, label: str, kind: str) -> list[Record]:
        """Takes out what engines have printed of the step that this writer prints next: it comes again with that.

        Empty unless all that stands behind the writer's last step is of engines.
        """
        stream = self._streams.get((source, label, kind))
        if stream is None or stream.segment != len(self.segments) - 1:
            return []
        segment = self.segments[stream.segment]
        ahead = [i for i in segment.rows if i > stream.last]
        if not 0 < len(ahead) <= MAX_AHEAD or any(segment.priorities[i] >= TRAINER for i in ahead):
            return []
        packed = segment.chunks[-1].last if segment.chunks else -1
        if packed > stream.last or (packed < 0 and len(ahead) == len(segment.rows)):
            return []
        records = [
            Record(segment.rows.pop(i), segment.priorities.pop(i), segment.times.pop(i, None))
            for i in sorted(ahead)
        ]
        segment.last = max([packed, *segment.rows])
        self.version += 1
        return records

    def extend(
        self,
        columns: Mapping[str, Column],
        kinds: NDArray[np.int8],
        source: str,
        label: str,
        kind: str,
        time: float | None,
    ) -> None:
        """Appends rising steps of a writer whose `position` they follow."""
        stream = self._streams[source, label, kind]
        segment = self.segments[stream.segment]
        segment.pack(0)
        iterations = columns["iteration"][0]
        others = {n: c for n, c in columns.items() if n != "iteration"}
        segment.append_chunk(chunk_of_columns(iterations, others, kinds))
        segment.first = int(iterations[0]) if segment.first < 0 else segment.first
        segment.last = stream.last = int(iterations[-1])
        segment.last_time = time if time is not None else segment.last_time
        self._stepped[source] = True
        self.version += 1

    def _fill(self, record: Record) -> Step | None:
        for segment in reversed(self.segments):
            known = segment.rows.get(record.step.iteration)
            if known is not None:
                fill(known, record.step)
                self.version += 1
                return known
        return None

    def _follow(self, record: Record) -> Step | None:
        """An engine's line beside the trainer's own: part of the run that reaches back to it, never a new one."""
        for segment in reversed(self.segments):
            if not segment.empty and record.step.iteration >= segment.first:
                return self._place(segment, record)
        return None

    def _claim(self, record: Record, source: str, marks: int) -> Segment:
        """The segment of a writer seen for the first time: the newest one unless that contradicts."""
        if not self.segments:
            return self._new(source, marks)
        if marks and (source, marks) in self._by_mark:
            return self.segments[self._by_mark[source, marks]]
        if source in self._stepped:
            # Another reader of the same file: only a pause or another number of iterations tells runs apart.
            newest = self.segments[-1]
            other = other_run(newest, record) or far_before(newest, record)
            return self._new(source, marks) if other else newest
        rank_of_known = source in self.siblings and bool(self.siblings.keys() & self._stepped.keys())
        for segment in self.segments:
            if rank_of_known:  # its own losses may differ from another rank's
                apart = other_run(segment, record) or segment.attempt != self.siblings[source]
            else:
                apart = contradicts(segment, record) or self._second_job(segment, record, source)
            if record.priority == BAR or not apart:
                return segment
        return self._new(source, marks)

    def _second_job(self, segment: Segment, record: Record, source: str) -> bool:
        """Whether this file is the log of a later job: it has start-up text of its own and goes on behind."""
        return (
            segment.header_of not in (None, source)
            and source in self._headed
            and record.step.iteration > segment.last
        )

    def _advance(self, record: Record, stream: _Stream, source: str, marks: int) -> Segment:
        segment = self.segments[stream.segment]
        iteration = record.step.iteration
        if marks > stream.marks:
            return self._after_mark(record, source, marks)
        if record.priority == BAR and iteration <= stream.last and record.step.loss is None:
            return segment  # the same bar drawn again, or by another rank
        newest = self.segments[-1]
        behind = segment is not newest and iteration >= newest.first and source not in self.siblings
        if behind and not is_duplicate(segment, record):
            return self._catch_up(newest, record, source)
        if iteration > stream.last:
            changed = None not in (segment.total, record.step.total_iterations) and (
                segment.total != record.step.total_iterations
            )
            # Steps that go on while time goes back are no other run: the clock was set.
            waited = long_pause(segment, record) and (record.time or 0.0) > (segment.last_time or 0.0)
            return self._next(segment, source) if changed or waited else segment
        if is_duplicate(segment, record) or is_late(segment, record):
            return segment
        return self._next(segment, source, record)

    def _other_after_all(self, segment: Segment, record: Record, source: str, kind: str) -> bool:
        """Whether a file that began like another one's run now tells of other figures: two runs of one seed."""
        begun = segment.begun_by
        return (
            begun is not None
            and begun[0] != source
            and begun[1] == kind
            and source not in self.siblings
            and record.priority >= TRAINER
            and not record.ordinal
            and contradicts(segment, record)
        )

    def _fork(self, segment: Segment, stream: _Stream, source: str) -> Segment:
        """A run of its own for such a file, with the steps that both have in common."""
        common = [replace(s) for s in segment_steps(segment) if stream.first <= s.iteration <= stream.last]
        new = self._new(source, 0)
        for step in common:
            self._place(new, Record(step, TRAINER))
        return new

    def _catch_up(self, newest: Segment, record: Record, source: str) -> Segment:
        """The segment of a writer that was silent while others began a new run."""
        known = newest.holds(record.step.iteration)
        if known is not None and not is_duplicate(newest, record):
            return self._next(newest, source, record)
        return self._new(source, 0) if known is None and other_run(newest, record) else newest

    def _after_mark(self, record: Record, source: str, marks: int) -> Segment:
        """The segment that began with this mark; another writer may have begun it already."""
        known = self._by_mark.get((source, marks))
        if known is None:
            return self._new(source, marks)
        segment = self.segments[known]
        late = (
            record.step.iteration > segment.last or is_duplicate(segment, record) or is_late(segment, record)
        )
        return segment if late else self._next(segment, source, record)

    def _next(self, segment: Segment, source: str, record: Record | None = None) -> Segment:
        """The segment after this one: another writer may have begun it already."""
        if segment.index + 1 < len(self.segments):
            following = self.segments[segment.index + 1]
            if record is None or not contradicts(following, record):
                return following
        return self._new(source, 0)

    def _new(self, source: str, marks: int) -> Segment:
        segment = Segment(len(self.segments), self._resumed_from)
        segment.header_of = source if source in self._headed else None
        segment.attempt = self.siblings.get(source, 0)
        self._resumed_from = None
        if self.segments:
            self.segments[-1].pack(KEPT_OPEN)
        self.segments.append(segment)
        if marks:
            self._by_mark[source, marks] = segment.index
        return segment

    def _place(self, segment: Segment, record: Record) -> Step | None:
        step = record.step
        iteration = step.iteration
        known = segment.rows.get(iteration)
        self.version += 1
        segment.total = step.total_iterations if step.total_iterations is not None else segment.total
        if known is None and segment.chunks and iteration <= segment.chunks[-1].last:
            return self._place_late(segment, step)
        if known is None:
            step.segment = segment.index
            segment.rows[iteration] = step
            segment.priorities[iteration] = record.priority
            if record.time is not None:
                segment.times[iteration] = record.time
                segment.first_time = record.time if segment.first_time is None else segment.first_time
                segment.last_time = record.time
            segment.first = iteration if segment.first < 0 else min(segment.first, iteration)
            segment.last = max(segment.last, iteration)
            if len(segment.rows) >= OPEN_ROWS + KEPT_OPEN:
                segment.pack(KEPT_OPEN)
            return step
        if record.priority > segment.priorities.get(iteration, 0):
            segment.priorities[iteration] = record.priority
            override(known, step)
            return known
        return known if fill(known, step) else None

    def _place_late(self, segment: Segment, step: Step) -> Step | None:
        """A step older than what is packed: it is added there, or fills what is missing there."""
        step.segment = segment.index
        known = segment.packed_step(step.iteration)
        if known is None:
            segment.first = min(segment.first, step.iteration)
            segment.insert_packed([step])
            return step
        if not fill(known, step):
            return None
        segment.late[step.iteration] = known
        if len(segment.late) >= MAX_LATE:
            segment.settle()
        return known

    def settle(self) -> None:
        """Packs what was completed late, so that the steps can be looked at."""
        for segment in self.segments:
            segment.settle()
