"""Owns reading log lines into steps: formats, their duplicates, and what the run is. No files, no waiting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpt_tune.logs import facts as run_facts
from gpt_tune.logs.clean import MAX_LINE
from gpt_tune.logs.facts import RunFacts
from gpt_tune.logs.formats import make_formats
from gpt_tune.logs.formats.base import Fact, Format, Item, Line, Mark, Record
from gpt_tune.logs.prefixes import read as read_prefix
from gpt_tune.logs.table import StepTable
from gpt_tune.logs.types import RankMemory, Step
from gpt_tune.models.flops import model_flops
from gpt_tune.models.shape import ModelShape
from gpt_tune.units import TERA

MAX_MARKS = 4096
MAX_RANKS = 65536


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened between steps (see formats.base.Mark), after this many steps had been read."""

    kind: str
    iteration: int | None
    source: str


class _Weight(NamedTuple):
    """How much a format's steps say about who trains: its priority first, then how many there are."""

    priority: int
    steps: int
    name: str


@dataclass(slots=True)
class _Source:
    """One file: its own formats, since they hold unfinished records."""

    formats: list[Format]
    by_trigger: list[tuple[str, Format]] = field(default_factory=list)


class LogParser:
    """Reads lines of any number of files into one table of steps.

    shape, gpus, seq_length: what is known beforehand (the ledger); what the log itself says fills the rest.
    """

    def __init__(
        self,
        shape: ModelShape | None = None,
        gpus: int | None = None,
        seq_length: int | None = None,
        global_batch_size: int | None = None,
    ) -> None:
        self.table = StepTable()
        self.ordinals = StepTable()  # steps that had to be numbered by order
        self.events: list[Event] = []
        self.arguments: dict[str, str] = {}
        self.lines = 0
        self._given = RunFacts(shape, seq_length, global_batch_size, None, gpus)
        self._facts: RunFacts | None = None
        self._memory: dict[int | None, RankMemory] = {}
        self._usage: dict[int | None, RankMemory] = {}
        self._sources: dict[str, _Source] = {}
        self._counts: dict[str, _Weight] = {}
        self._flops_per_sample: float | None = None
        self._changed: dict[int, Step] = {}  # by id: one step may be completed by several lines

    # -- feeding -----------------------------------------------------------------------------------

    def feed(self, lines: Sequence[str], source: str = "") -> list[Step]:
        """Reads clean lines (see logs.clean); the steps they added or completed."""
        self.lines += len(lines)
        self._changed = {}
        state = self._source(source)
        text = "\n".join(lines)
        wanted = [(trigger, fmt) for trigger, fmt in state.by_trigger if trigger in text]
        pending = any(f.pending for f in state.formats)
        if wanted or pending:
            self._feed_lines(lines, source, state, wanted)
        return list(self._changed.values())

    def _feed_lines(
        self, lines: Sequence[str], source: str, state: _Source, wanted: list[tuple[str, Format]]
    ) -> None:
        for raw in lines:
            formats = [fmt for trigger, fmt in wanted if trigger in raw]
            for fmt in state.formats:
                if fmt.pending and fmt not in formats:
                    formats.append(fmt)
            if not formats:
                continue
            line = make_line(raw)
            seen: list[Format] = []
            for fmt in formats:
                if fmt not in seen:
                    seen.append(fmt)
                    for item in fmt.feed(line):
                        self._take(item, source, line, fmt)

    def finish(self) -> list[Step]:
        """Lets formats give out what waited for a continuation: the log has ended."""
        self._changed = {}
        blank = make_line("")
        for name, state in self._sources.items():
            for fmt in state.formats:
                for item in fmt.finish():
                    self._take(item, name, blank, fmt)
        return list(self._changed.values())

    def begin_run(self, source: str) -> None:
        """The file was replaced or truncated: what comes is another run."""
        self.table.mark_start(source, None)
        self.ordinals.mark_start(source, None)
        self._sources.pop(source, None)

    def _source(self, name: str) -> _Source:
        state = self._sources.get(name)
        if state is None:
            formats = make_formats()
            state = _Source(formats, [(t, f) for f in formats for t in f.triggers])
            self._sources[name] = state
        return state

    def _take(self, item: Item, source: str, line: Line, fmt: Format) -> None:
        if isinstance(item, Record):
            self._take_record(item, source, line, fmt)
        elif isinstance(item, RankMemory):
            kept = self._usage if fmt.name == "deepspeed-usage" else self._memory
            if len(kept) < MAX_RANKS:
                kept[item.rank] = item
        elif isinstance(item, Mark):
            self._take_mark(item, source, line)
        elif isinstance(item, Fact) and len(self.arguments) < run_facts.MAX_ARGUMENTS:
            self.arguments[item.name] = item.value
            self._facts = None
            self._flops_per_sample = None

    def _take_record(self, record: Record, source: str, line: Line, fmt: Format) -> None:
        table = self.ordinals if record.ordinal else self.table
        kind = type(fmt).__name__
        placed = table.add(record, source, line.prefix.label, kind)
        if not record.fills:
            known = self._counts.get(kind)
            # The name is taken now: a reader learns its dialect from the lines.
            self._counts[kind] = _Weight(record.priority, known.steps + 1 if known else 1, fmt.name)
        if placed is not None:
            self._derive(placed)
            self._changed[id(placed)] = placed

    def _take_mark(self, mark: Mark, source: str, line: Line) -> None:
        if mark.kind == "start":
            label = line.prefix.label if mark.only_label else None
            self.table.mark_start(source, label)
            self.ordinals.mark_start(source, label)
        elif mark.kind == "resumed":
            self.table.mark_resumed(mark.iteration)
        if len(self.events) < MAX_MARKS:
            self.events.append(Event(mark.kind, mark.iteration, source))

    def _derive(self, step: Step) -> None:
        """Model TFLOPS from step time and shape, and the right name for the trainer's own figure."""
        facts = self.facts
        batch = step.global_batch_size or facts.global_batch_size
        time = step.step_time_ms
        if self._flops_per_sample is None:
            self._flops_per_sample = flops_per_sample(facts)
        if self._flops_per_sample and batch and time and time > 0 and facts.gpus:
            step.model_tflops = self._flops_per_sample * batch / (time / 1000.0) / facts.gpus / TERA
        if step.logged_tflops_kind == "hardware" and facts.shape is not None:
            grouped = facts.shape.kv_heads != facts.shape.heads
            if grouped and self.trainer == "megatron-deepspeed":
                step.logged_tflops_kind = "gqa_wrong"

    # -- what was read -----------------------------------------------------------------------------

    @property
    def facts(self) -> RunFacts:
        """What is known about the run: given beforehand, else as the log prints it."""
        if self._facts is None:
            logged = run_facts.read_facts(self.arguments) if self.arguments else RunFacts()
            self._facts = _prefer(self._given, logged)
        return self._facts

    @property
    def trainer(self) -> str | None:
        """The trainer whose own step lines were read, else the engine under it."""
        if not self._counts:
            return None
        name = max(self._counts.values()).name
        engine = "Engine" in self._counts or "Pipeline" in self._counts
        if name == "megatron-lm" and (engine or self.arguments.get("deepspeed") == "True"):
            return "megatron-deepspeed"
        return name

    @property
    def best(self) -> StepTable:
        """Numbered steps when they say anything, else those numbered by order."""
        if len(self.ordinals) and not _says_anything(self.table):
            return self.ordinals
        return self.table

    @property
    def memory(self) -> list[RankMemory]:
        """The last memory report of each rank; DeepSpeed's own only when no rank reported."""
        return list((self._memory or self._usage).values())


def make_line(raw: str) -> Line:
    """A clean line with its prefixes read."""
    raw = raw[:MAX_LINE]
    prefix = read_prefix(raw)
    return Line(raw, raw[prefix.end :], prefix)


def flops_per_sample(facts: RunFacts) -> float:
    """Model FLOPs of one sequence, forward and backward; 0.0 when the shape or its length is unknown."""
    if facts.shape is None:
        return 0.0
    length = facts.seq_length or facts.shape.seq_length
    return model_flops(facts.shape, length, length)


def _prefer(given: RunFacts, logged: RunFacts) -> RunFacts:
    values = {
        name: getattr(given, name) if getattr(given, name) is not None else getattr(logged, name)
        for name in RunFacts.__dataclass_fields__
    }
    return RunFacts(**values)


def _says_anything(table: StepTable) -> bool:
    return any(
        step.step_time_ms is not None or step.loss is not None
        for segment in table.segments
        for step in segment.rows.values()
    ) or any(segment.chunks for segment in table.segments)


def feed_all(parser: LogParser, lines: Iterable[str], source: str = "", batch: int = 4096) -> None:
    """Feeds any number of lines in batches."""
    held: list[str] = []
    for line in lines:
        held.append(line)
        if len(held) >= batch:
            parser.feed(held, source)
            held = []
    parser.feed(held, source)
