"""Owns reading log lines into steps: formats, their duplicates, and what the run is. No files, no waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpt_tune.logs.clean import plain_line, split_lines
from gpt_tune.logs.facts import RunFacts
from gpt_tune.logs.file_ranks import NOBODY, Place, places
from gpt_tune.logs.formats import make_formats
from gpt_tune.logs.formats.base import TRAINER, Fact, Format, Item, Line, Mark, Record
from gpt_tune.logs.formats.megatron import Megatron
from gpt_tune.logs.gather import FLUSH_ROWS, Aside, Gather
from gpt_tune.logs.known import Known
from gpt_tune.logs.prefixes import Prefix
from gpt_tune.logs.rank_times import RankTime, RankTimes
from gpt_tune.logs.reading import (
    KEPT_STEP_LINES,
    PAUSE_SECONDS,
    Candidates,
    Rows,
    Source,
    candidates,
    make_line,
    paused,
    read_rows,
    scanner_of,
    shipped_scanner,
)
from gpt_tune.logs.scan import Block
from gpt_tune.logs.table import StepTable
from gpt_tune.logs.timer_blocks import Waiting, take_out
from gpt_tune.logs.trainers import Trainers
from gpt_tune.logs.types import Event, RankMemory, Step
from gpt_tune.logs.unnumbered import Unnumbered
from gpt_tune.models.shape import ModelShape

MAX_MARKS = 4096
MAX_RANKS = 65536
LEAST_ROWS = (
    16  # step lines of one writer before they are read as columns: where every rank prints, it never comes to
)


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
        self._unnumbered = Unnumbered()
        self.rank_times = RankTimes()
        self._places: dict[str, Place] = {}
        self._timed = Waiting(self.rank_times)
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
        self._walk(candidates(found, source, state, lambda number: lines[number]))
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
        state.hurry(True)
        found, timed = take_out(block, self._scanner.lines(block), state)
        self._timed.extend(timed)
        rows = read_rows(block, found, state)
        self._walk(candidates(found, source, state, lambda n: plain_line(found.line(block, n)), rows))
        state.hurry(False)
        state.lines += found.total
        self._timed.until(state.lines, self._at)

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

    def place(self, files: Sequence[str]) -> None:
        """All files of the job, as far as they are known: who wrote them, by their names."""
        self._places = places(files)
        self._table.siblings = {name: p.attempt for name, p in self._places.items() if p.is_rank}
        for name, state in self._sources.items():
            state.place = self._places.get(name, NOBODY)

    def _make_formats(self) -> list[Format]:
        return [*make_formats(), *(make() for make in self._more)]

    def _source(self, name: str) -> Source:
        state = self._sources.get(name)
        if state is None:
            formats = self._make_formats()
            holders = [f for f in formats if type(f).pending is not Format.pending]
            state = self._sources[name] = Source(formats, holders, place=self._places.get(name, NOBODY))
        self.rank_times.run = state.run
        return state

    # -- walking over candidate lines --------------------------------------------------------------

    def _walk(self, some: Candidates) -> None:
        """Feeds candidate lines in order, and any line that an unfinished record waits for."""
        numbers, rows = some.numbers, some.rows
        place = self._feed_pending(some, 0, 0)
        again, wait = 0, 1  # a run that cannot be taken yet is looked at ever more seldom
        while place < len(numbers):
            if rows is not None and rows.fits[place] and place >= again:
                stop = int(rows.next_other[place])
                if self._gather_rows(some, rows, place, stop):
                    place, wait = stop, 1
                    continue
                again, wait = place + wait, 2 * wait
            self._feed_line(some, numbers[place], some.groups[place])
            place = self._feed_pending(some, place + 1, numbers[place] + 1)
        self._flush_if_many()

    def _feed_pending(self, some: Candidates, place: int, number: int) -> int:
        numbers = some.numbers
        while number < some.total and any(f.pending for f in some.state.holders):
            bits = 0
            if place < len(numbers) and numbers[place] == number:
                bits = some.groups[place]
                place += 1
            self._feed_line(some, number, bits)
            number += 1
        return place

    @property
    def _at(self) -> int:
        """The iteration of the step line read last."""
        return self._gather.last if self._gather is not None else self._last_iteration

    def _feed_line(self, some: Candidates, number: int, bits: int) -> None:
        raw, state = some.line_of(number), some.state
        line = make_line(raw, state.place)
        if self._timed:
            self._timed.until(state.lines + number, self._at)
        for fmt, hinted in state.readers(bits):
            if (hinted and any(t in raw for t in fmt.triggers)) or fmt.pending:
                for item in fmt.feed(line):
                    self._take(item, some.source, state, line, fmt, state.lines + number)

    # -- rows read as columns ----------------------------------------------------------------------

    def _gather_rows(self, some: Candidates, rows: Rows, place: int, stop: int) -> bool:
        """Takes the run [place, stop) as columns, unless the ordinary reader must look first."""
        state, source, gather = some.state, some.source, self._gather
        taken = [some.numbers[i] for i in rows.run(place, stop)]
        first = make_line(some.line_of(taken[0]), state.place).prefix
        long = state.note_writer(first.label, len(taken)) >= LEAST_ROWS
        if gather is None or gather.source != source or gather.label != first.label:
            if not long:
                return False
            self._settle()
            if self._pass_over(rows, place, stop, some, first):
                return True
            gather = self._open_gather(source, first.label)
            if gather is None:
                return False
        last = make_line(some.line_of(taken[-1]), state.place).prefix if len(taken) > 1 else first
        columns, kinds = rows.part(place, stop)
        if not gather.continues_with(columns) or paused(gather.last_time, first.time, last.time, columns):
            return False
        self._known.derive_columns(columns)
        if self._timed:
            self._timed.along(taken, columns["iteration"][0], state.lines, self._at)
        gather.add(columns, kinds, last.time)
        if "step_time_ms" in columns:
            self.rank_times.note_steps(
                columns["iteration"][0], columns["step_time_ms"][0], first, state.place
            )
        state.step_lines.extend(state.lines + n for n in taken[-KEPT_STEP_LINES:])
        megatron = next(f for f in state.formats if isinstance(f, Megatron))
        megatron.note(gather.last)
        self._last_iteration = gather.last
        self._trainers.count("Megatron", TRAINER, megatron.name, len(taken))
        for i in range(place, stop) if len(taken) < stop - place else ():
            if not rows.fits[i]:
                self._feed_line(some, some.numbers[i], some.groups[i])
        return True

    def _pass_over(self, rows: Rows, place: int, stop: int, some: Candidates, prefix: Prefix) -> bool:
        """Whether another rank's file has these steps already; their times are kept, to compare the ranks."""
        columns, _ = rows.part(place, stop)
        alone = int(rows.fits[place:stop].sum()) == stop - place and not self._timed
        if not alone or not self._table.passes_over(columns, some.source, prefix.label, "Megatron"):
            return False
        some.state.step_lines.extend(
            some.state.lines + n for n in some.numbers[place:stop][-KEPT_STEP_LINES:]
        )
        self._last_iteration = int(columns["iteration"][0][-1])
        times = columns.get("step_time_ms")
        if times is not None:
            self.rank_times.note_steps(columns["iteration"][0], times[0], prefix, some.state.place)
        return True

    def _open_gather(self, source: str, label: str) -> Gather | None:
        if self._table.position(source, label, "Megatron") is None:
            return None
        ahead = [Aside(r, label, "Engine") for r in self._table.take_ahead(source, label, "Megatron")]
        last, total, time = self._table.position(source, label, "Megatron") or (0, None, None)
        self._gather = Gather(source, label, "Megatron", last, total, time, ahead)
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
            self.rank_times.take(item, self._at, line.prefix)
        elif isinstance(item, Mark):
            self._take_mark(item, source, line)
        elif isinstance(item, Fact):
            self._known.take(item.name, item.value)

    def _take_record(
        self, record: Record, source: str, state: Source, line: Line, fmt: Format, number: int
    ) -> None:
        kind = type(fmt).__name__
        if record.fills and record.step.iteration < 0:
            self._unnumbered.wait(record.step)
            return
        if not record.fills:
            self._trainers.count(kind, record.priority, fmt.name)
            if not record.ordinal:
                self._last_iteration = record.step.iteration
        if self._gather is not None:
            if self._take_aside(record, source, line.prefix.label, kind, line.prefix.time):
                self._note_time(record, source, state, line, kind)
                return
            self._settle()
        table = self._ordinals if record.ordinal else self._table
        before = len(table)
        placed = table.add(record, source, line.prefix.label, kind)
        self._note_time(record, source, state, line, kind)
        if len(table) > before or (source in table.siblings and record.priority >= TRAINER):
            state.step_lines.append(number)
        if placed is not None:
            if not record.ordinal:
                self._unnumbered.meet(placed)
            self._derive(placed)
            self._changed[id(placed)] = placed

    def _note_time(self, record: Record, source: str, state: Source, line: Line, kind: str) -> None:
        """Keeps what its rank says of a step's time, to compare it with the others'."""
        if record.priority >= TRAINER and not (record.ordinal or record.fills):
            state.run = self.rank_times.run = self._table.run_of(source, line.prefix.label, kind)
            self.rank_times.note_step(record.step, line.prefix, state.place)

    def _take_aside(self, record: Record, source: str, label: str, kind: str, time: float | None) -> bool:
        """Whether a record could join the rows being gathered."""
        gather = self._gather
        if gather is None or record.ordinal or source != gather.source:
            return False
        if kind == gather.kind and label == gather.label and not record.fills:
            if not gather.continues_as(record.step, time, PAUSE_SECONDS):
                return False
            self._derive(record.step)
            gather.add_step(record.step, time)
            return True
        if record.priority >= TRAINER and not record.fills:
            return False
        gather.asides.append(Aside(record, label, kind))
        if len(gather.asides) >= FLUSH_ROWS:
            gather.fill()
        return len(gather.asides) < FLUSH_ROWS

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
        self._table.settle()
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
