"""Owns reading log lines into steps: formats, their duplicates, and what the run is. No files, no waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpt_tune.logs.clean import clean_line, split_lines
from gpt_tune.logs.facts import RunFacts
from gpt_tune.logs.formats import make_formats
from gpt_tune.logs.formats.base import TRAINER, Fact, Format, Item, Line, Mark, Record
from gpt_tune.logs.formats.megatron import Megatron
from gpt_tune.logs.gather import FLUSH_ROWS, Aside, Gather
from gpt_tune.logs.known import Known
from gpt_tune.logs.rank_times import RankTime, RankTimes
from gpt_tune.logs.reading import (
    KEPT_STEP_LINES,
    PAUSE_SECONDS,
    Rows,
    Source,
    make_line,
    paused,
    read_rows,
    scanner_of,
    shipped_scanner,
)
from gpt_tune.logs.scan import Block, Lines
from gpt_tune.logs.table import StepTable
from gpt_tune.logs.trainers import Trainers
from gpt_tune.logs.types import Event, RankMemory, Step
from gpt_tune.models.shape import ModelShape

MAX_MARKS = 4096
MAX_RANKS = 65536
LEAST_ROWS = 16  # a shorter run of step lines is read one by one: where every rank prints, none is longer
SAME_TIME = 0.02  # relative: 9.12 s and 9118.0 ms are one step


class LogParser:
    """Reads lines of any number of files into one table of steps.

    shape, gpus, seq_length, global_batch_size: what is known beforehand (the ledger); what the log itself says
    fills the rest. more_formats: readers beyond the shipped ones, such as a pattern the user taught.
    """

    def __init__(
        self,
        shape: ModelShape | None = None,
        gpus: int | None = None,
        seq_length: int | None = None,
        global_batch_size: int | None = None,
        more_formats: Sequence[Callable[[], Format]] = (),
    ) -> None:
        self.events: list[Event] = []
        self._table = StepTable()
        self._ordinals = StepTable()  # steps that had to be numbered by order
        self._more = tuple(more_formats)
        self._scanner = shipped_scanner() if not more_formats else scanner_of(self._make_formats())
        self._known = Known(RunFacts(shape, seq_length, global_batch_size, None, gpus))
        self._memory: dict[int | None, RankMemory] = {}
        self._usage: dict[int | None, RankMemory] = {}
        self._sources: dict[str, Source] = {}
        self._trainers = Trainers()
        self._changed: dict[int, Step] = {}  # by id: one step may be completed by several lines
        self._gather: Gather | None = None
        self._unnumbered: Step | None = None
        self._placed: Step | None = None
        self.rank_times = RankTimes()
        self._last_iteration = 0  # of the line read last, whoever printed it

    # -- feeding -----------------------------------------------------------------------------------

    def feed(self, lines: Sequence[str], source: str = "") -> list[Step]:
        """Reads clean lines (see logs.clean); the steps they added or completed."""
        self._settle()
        self._changed = {}
        state = self._source(source)
        block = Block("\n".join(lines).encode("utf-8", "replace"))
        # Blank lines at the end leave no trace in the joined text.
        found = self._scanner.lines(block)._replace(total=len(lines))
        self._walk(found, source, state, lambda number: lines[number], None)
        state.lines += len(lines)
        return list(self._changed.values())

    def feed_block(self, raw: bytes, source: str = "") -> None:
        """Reads whole raw lines; far faster than feed for the Megatron family, with the same result."""
        self.feed_bytes(Block(raw), source)

    def feed_bytes(self, block: Block, source: str = "") -> None:
        """The same for a block that is already laid out; it is not needed any more afterwards."""
        if not block.plain:
            lines, _ = split_lines(block.raw())
            self.feed(lines, source)
            return
        self._changed = {}
        state = self._source(source)
        found = self._scanner.lines(block)
        state.hurry(True)
        rows = read_rows(block, found, state)
        self._walk(found, source, state, lambda n: clean_line(found.line(block, n)), rows)
        state.hurry(False)
        state.lines += found.total

    def finish(self) -> list[Step]:
        """Lets formats give out what waited for a continuation: the log has ended."""
        self._settle()
        self._changed = {}
        blank = make_line("")
        for name, state in self._sources.items():
            for fmt in state.formats:
                for item in fmt.finish():
                    self._take(item, name, state, blank, fmt, state.lines)
        return list(self._changed.values())

    def begin_run(self, source: str) -> None:
        """The file was replaced or truncated: what comes is another run."""
        self._settle()
        self._table.mark_start(source, None)
        self._ordinals.mark_start(source, None)
        self._sources.pop(source, None)

    def learn(self, arguments: dict[str, str]) -> None:
        """Takes over what another parser read of the same run's arguments."""
        self._known.learn(arguments)

    def _make_formats(self) -> list[Format]:
        return [*make_formats(), *(make() for make in self._more)]

    def _source(self, name: str) -> Source:
        state = self._sources.get(name)
        if state is None:
            formats = self._make_formats()
            holders = [f for f in formats if type(f).pending is not Format.pending]
            state = self._sources[name] = Source(formats, holders)
        return state

    # -- walking over candidate lines --------------------------------------------------------------

    def _walk(
        self,
        found: Lines,
        source: str,
        state: Source,
        line_of: Callable[[int], str],
        rows: Rows | None,
    ) -> None:
        """Feeds candidate lines in order, and any line that an unfinished record waits for."""
        numbers, groups = found.numbers.tolist(), found.groups.tolist()
        place = self._feed_pending(0, 0, numbers, groups, found.total, source, state, line_of)
        while place < len(numbers):
            if rows is not None and rows.fits[place]:
                stop = int(rows.next_other[place])
                place += self._gather_rows(rows, place, stop, source, state, line_of, numbers)
                if place == stop:
                    continue
            number = numbers[place]
            self._feed_line(line_of(number), groups[place], source, state, state.lines + number)
            place = self._feed_pending(
                place + 1, number + 1, numbers, groups, found.total, source, state, line_of
            )
        self._flush_if_many()

    def _feed_pending(
        self,
        place: int,
        number: int,
        numbers: list[int],
        groups: list[int],
        total: int,
        source: str,
        state: Source,
        line_of: Callable[[int], str],
    ) -> int:
        while number < total and any(f.pending for f in state.holders):
            bits = 0
            if place < len(numbers) and numbers[place] == number:
                bits = groups[place]
                place += 1
            self._feed_line(line_of(number), bits, source, state, state.lines + number)
            number += 1
        return place

    def _feed_line(self, raw: str, bits: int, source: str, state: Source, number: int) -> None:
        line = make_line(raw)
        for fmt, bit, holds in state.order:
            if (bits & bit and any(t in raw for t in fmt.triggers)) or (holds and fmt.pending):
                for item in fmt.feed(line):
                    self._take(item, source, state, line, fmt, number)

    # -- rows read as columns ----------------------------------------------------------------------

    def _gather_rows(
        self,
        rows: Rows,
        place: int,
        stop: int,
        source: str,
        state: Source,
        line_of: Callable[[int], str],
        numbers: list[int],
    ) -> int:
        """Takes rows [place, stop) as columns; how many of them (0: the ordinary reader must look first)."""
        gather = self._gather
        if stop - place < LEAST_ROWS and (gather is None or gather.source != source):
            return 0
        first = make_line(line_of(numbers[place])).prefix
        if stop - place < LEAST_ROWS and (gather is None or gather.label != first.label):
            return 0
        if gather is None or gather.source != source or gather.label != first.label:
            self._settle()
            gather = self._open_gather(source, first.label)
            if gather is None:
                return 0
        last = make_line(line_of(numbers[stop - 1])).prefix if stop - place > 1 else first
        part = slice(int(rows.place[place]), int(rows.place[stop - 1]) + 1)
        columns = {n: (v[part], m[part]) for n, (v, m) in rows.columns.items()}
        iterations, totals = columns["iteration"][0], columns["total_iterations"][0]
        if iterations[0] <= gather.last or (np.diff(iterations) <= 0).any() or (totals != gather.total).any():
            return 0
        if paused(gather.last_time, first.time, last.time, columns):
            return 0
        self._known.derive_columns(columns)
        gather.add(columns, rows.kinds[part], last.time)
        state.step_lines.extend(state.lines + n for n in numbers[max(place, stop - KEPT_STEP_LINES) : stop])
        megatron = next(f for f in state.formats if isinstance(f, Megatron))
        megatron.note(gather.last)
        self._last_iteration = gather.last
        self._trainers.count("Megatron", TRAINER, megatron.name, stop - place)
        return stop - place

    def _open_gather(self, source: str, label: str) -> Gather | None:
        position = self._table.position(source, label, "Megatron")
        if position is None:
            return None
        last, total, time = position
        self._gather = Gather(source, label, "Megatron", last, total, time)
        return self._gather

    def _flush_if_many(self) -> None:
        if self._gather is not None and self._gather.rows >= FLUSH_ROWS:
            self._gather.into(self._table, everything=False)

    def _settle(self) -> None:
        """Puts gathered rows into the table, so that it can be looked at or added to."""
        if self._gather is not None:
            gather, self._gather = self._gather, None
            gather.into(self._table, everything=True)

    # -- what a line said --------------------------------------------------------------------------

    def _take(self, item: Item, source: str, state: Source, line: Line, fmt: Format, number: int) -> None:
        if isinstance(item, Record):
            self._take_record(item, source, state, line, fmt, number)
        elif isinstance(item, RankMemory):
            kept = self._usage if fmt.name == "deepspeed-usage" else self._memory
            if len(kept) < MAX_RANKS:
                kept[item.rank] = item
        elif isinstance(item, RankTime):
            last = self._gather.last if self._gather is not None else self._last_iteration
            self.rank_times.take(item, last, line.prefix)
        elif isinstance(item, Mark):
            self._take_mark(item, source, line)
        elif isinstance(item, Fact):
            self._known.take(item.name, item.value)

    def _take_record(
        self, record: Record, source: str, state: Source, line: Line, fmt: Format, number: int
    ) -> None:
        kind = type(fmt).__name__
        if record.fills and record.step.iteration < 0:
            self._unnumbered = record.step
            self._join_unnumbered()
            return
        if not record.fills:
            self._trainers.count(kind, record.priority, fmt.name)
            if not record.ordinal:
                self._last_iteration = record.step.iteration
                if record.priority >= TRAINER:
                    self.rank_times.note_step(record.step, line.prefix)
        if self._gather is not None:
            if self._take_aside(record, source, line.prefix.label, kind, line.prefix.time):
                return
            self._settle()
        table = self._ordinals if record.ordinal else self._table
        before = len(table)
        placed = table.add(record, source, line.prefix.label, kind)
        if len(table) > before:
            state.step_lines.append(number)
        if placed is not None:
            if not record.ordinal:
                self._placed = placed
                self._join_unnumbered()
            self._derive(placed)
            self._changed[id(placed)] = placed

    def _take_aside(self, record: Record, source: str, label: str, kind: str, time: float | None) -> bool:
        """Whether a record could join the rows being gathered."""
        gather = self._gather
        if gather is None or record.ordinal or source != gather.source:
            return False
        step = record.step
        if kind == gather.kind and label == gather.label and not record.fills:
            if step.iteration <= gather.last or step.total_iterations != gather.total:
                return False
            if (
                gather.last_time is not None
                and time is not None
                and abs(time - gather.last_time) > PAUSE_SECONDS
            ):
                return False
            self._derive(step)
            gather.add_step(step, time)
            return True
        if record.priority >= TRAINER and not record.fills:
            return False
        gather.asides.append(Aside(record, label, kind))
        return len(gather.asides) < FLUSH_ROWS

    def _join_unnumbered(self) -> None:
        """A step time without an iteration belongs to the neighbouring step that took the same time."""
        waiting, placed = self._unnumbered, self._placed
        if waiting is None or placed is None or not placed.step_time_ms or not waiting.step_time_ms:
            return
        if abs(waiting.step_time_ms - placed.step_time_ms) > SAME_TIME * placed.step_time_ms:
            return
        self._unnumbered = None
        if placed.logged_tflops is None:
            placed.logged_tflops, placed.logged_tflops_kind = (
                waiting.logged_tflops,
                waiting.logged_tflops_kind,
            )

    def _take_mark(self, mark: Mark, source: str, line: Line) -> None:
        if mark.kind in ("start", "resumed"):
            self._settle()
        if mark.kind == "start":
            label = line.prefix.label if mark.only_label else None
            self._table.mark_start(source, label)
            self._ordinals.mark_start(source, label)
        elif mark.kind == "resumed":
            self._table.mark_resumed(mark.iteration)
        if len(self.events) < MAX_MARKS:
            iteration = mark.iteration
            if mark.kind == "saved" and iteration is None:
                last = self.best.last()  # the trainer names none: it was after its last step
                iteration = last.iteration if last is not None else None
            self.events.append(Event(mark.kind, iteration, source))

    def _derive(self, step: Step) -> None:
        """Model TFLOPS, and the right name for the trainer's own figure."""
        self._known.derive(step)
        shape = self.facts.shape
        grouped = shape is not None and shape.kv_heads != shape.heads
        if step.logged_tflops_kind == "hardware" and grouped and self.trainer == "megatron-deepspeed":
            step.logged_tflops_kind = "gqa_wrong"

    # -- what was read -----------------------------------------------------------------------------

    @property
    def table(self) -> StepTable:
        """The numbered steps."""
        self._settle()
        return self._table

    @property
    def best(self) -> StepTable:
        """Numbered steps when they say anything, else those numbered by order."""
        table = self.table
        return self._ordinals if len(self._ordinals) and not table.says_anything else table

    @property
    def facts(self) -> RunFacts:
        """What is known about the run: given beforehand, else as the log prints it."""
        return self._known.facts

    @property
    def arguments(self) -> dict[str, str]:
        """The trainer's arguments as the log prints them."""
        return self._known.arguments

    @property
    def trainer(self) -> str | None:
        """The trainer whose own step lines were read, else the engine under it."""
        return self._trainers.name(self.arguments)

    @property
    def memory(self) -> list[RankMemory]:
        """The last memory report of each rank; DeepSpeed's own only when no rank reported."""
        return list((self._memory or self._usage).values())

    def steps_after(self, source: str, line: int) -> int:
        """How many new steps (up to KEPT_STEP_LINES) this file gave after the line of this number, from 0."""
        state = self._sources.get(source)
        return sum(number > line for number in state.step_lines) if state is not None else 0
