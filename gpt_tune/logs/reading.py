"""Owns the state of reading one file: its formats, which of its lines they want, and rows read as columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpt_tune.logs.bulk import Heads, Templates
from gpt_tune.logs.clean import MAX_LINE
from gpt_tune.logs.columns import Column
from gpt_tune.logs.file_ranks import NOBODY, Place, apply
from gpt_tune.logs.formats import make_formats
from gpt_tune.logs.formats.base import Format, Line
from gpt_tune.logs.formats.deepspeed import Engine, Pipeline
from gpt_tune.logs.formats.megatron import Megatron
from gpt_tune.logs.prefixes import read as read_prefix
from gpt_tune.logs.scan import Block, Lines, Scanner

KEPT_STEP_LINES = 64
PAUSE_SECONDS = 3600.0


@dataclass(slots=True)
class Source:
    """One file: its own formats, since they hold unfinished records."""

    formats: list[Format]
    holders: list[Format]  # those that may want lines without a trigger
    templates: Templates = field(default_factory=Templates)
    heads: Heads = field(default_factory=Heads)
    lines: int = 0
    _readers: dict[int, list[tuple[Format, bool]]] = field(default_factory=dict)
    step_lines: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT_STEP_LINES))
    writer: str | None = None  # of the newest step lines
    written: int = 0  # step lines of this writer since another one's
    place: Place = NOBODY
    run: int = 0  # the segment of its newest step

    def readers(self, bits: int) -> list[tuple[Format, bool]]:
        """The formats that may want a line of these bits, and whether it has one of their triggers' windows.

        Those without any want it only while they hold an unfinished record.
        """
        found = self._readers.get(bits)
        if found is None:
            found = [
                (f, bool(bits & 1 << i))
                for i, f in enumerate(self.formats)
                if bits & 1 << i or f in self.holders
            ]
            self._readers[bits] = found
        return found

    def note_writer(self, label: str, lines: int) -> int:
        """How many step lines one and the same writer has printed by now."""
        self.written = lines + (self.written if label == self.writer else 0)
        self.writer = label
        return self.written

    def hurry(self, on: bool) -> None:
        """Whether whole blocks of the past are read now."""
        for holder in self.holders:
            holder.hurried = on
            holder.apart = False


class Rows(NamedTuple):
    """A block's candidate lines that were read as columns: which, where a run of them ends, and their figures.

    Between the rows of a run may stand lines that do not fit: those only add to its steps.
    """

    fits: NDArray[np.bool_]
    next_other: NDArray[np.int64]
    place: NDArray[np.int64]  # of a candidate among the rows of the columns
    columns: dict[str, Column]
    kinds: NDArray[np.int8]

    def run(self, place: int, stop: int) -> list[int]:
        """The candidates of a run that are rows."""
        taken: list[int] = (place + np.flatnonzero(self.fits[place:stop])).tolist()
        return taken

    def part(self, place: int, stop: int) -> tuple[dict[str, Column], NDArray[np.int8]]:
        """The figures of a run, which begins with a row."""
        part = slice(int(self.place[place]), int(self.place[place]) + int(self.fits[place:stop].sum()))
        return {n: (v[part], m[part]) for n, (v, m) in self.columns.items()}, self.kinds[part]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidate lines of a block of one file: their numbers within the block (of `total` lines) and bits."""

    source: str
    state: Source
    numbers: list[int]
    groups: list[int]
    total: int
    line_of: Callable[[int], str]
    rows: Rows | None


def candidates(
    found: Lines, source: str, state: Source, line_of: Callable[[int], str], rows: Rows | None = None
) -> Candidates:
    """Those that a scanner found."""
    return Candidates(
        source, state, found.numbers.tolist(), found.groups.tolist(), found.total, line_of, rows
    )


def read_rows(block: Block, found: Lines, state: Source) -> Rows | None:
    """Reads the block's Megatron step lines as columns, as far as they have a known shape."""
    index, megatron = next((i, f) for i, f in enumerate(state.formats) if isinstance(f, Megatron))
    mine = np.flatnonzero(found.groups == np.uint64(1 << index))
    if len(mine) < 2:
        return None
    head = b"samples/sec: " if megatron.name == "gpt-neox" else b"iteration"
    begins = state.heads.find(block, head, found.starts[mine])
    mine, begins = mine[begins >= 0], begins[begins >= 0]
    read, columns, kinds = state.templates.read(block, begins, found.stops[mine])
    if not read.any():
        return None
    fits = np.zeros(len(found.numbers), dtype=bool)
    fits[mine[read]] = True
    place = np.zeros(len(found.numbers), dtype=np.int64)
    place[mine] = np.arange(len(mine))
    # A run of rows also ends where the iteration does not rise: there another rank prints its line. What only
    # engines print of the same steps stands between rows without ending their run.
    engines = sum(1 << i for i, f in enumerate(state.formats) if isinstance(f, (Engine, Pipeline)))
    aside = (found.groups & ~np.uint64(engines)) == 0
    solid = np.flatnonzero(~aside)
    iterations = np.zeros(len(fits))
    iterations[mine] = columns["iteration"][0]
    rises = np.concatenate(([False], fits[solid][:-1] & (np.diff(iterations[solid]) > 0)))
    others = solid[~(fits[solid] & rises)]
    following = np.append(others, len(fits))[np.searchsorted(others, np.arange(len(fits)), side="right")]
    return Rows(fits, following, place, columns, kinds)


@cache
def shipped_scanner() -> Scanner:
    return scanner_of(make_formats())


def scanner_of(formats: Sequence[Format]) -> Scanner:
    literals: dict[str, int] = {}
    for index, fmt in enumerate(formats):
        for trigger in fmt.triggers:
            literals[trigger] = literals.get(trigger, 0) | 1 << index
    return Scanner(literals)


def make_line(raw: str, place: Place = NOBODY) -> Line:
    """A clean line with its prefixes read; place: who wrote its file."""
    raw = raw[:MAX_LINE]
    prefix = apply(read_prefix(raw), place)
    return Line(raw, raw[prefix.end :], prefix)


def paused(before: float | None, first: float | None, last: float | None, columns: dict[str, Column]) -> bool:
    """Whether the time stamps show a pause that the ordinary reader should judge."""
    if first is None or last is None:
        return False
    if before is not None and abs(first - before) > PAUSE_SECONDS:
        return True
    times = columns.get("step_time_ms")
    work = float(times[0].sum()) / 1000.0 if times is not None else 0.0
    spread = float(columns["iteration"][0][-1] - columns["iteration"][0][0]) / max(
        1, len(columns["iteration"][0]) - 1
    )
    return last < first or last - first > PAUSE_SECONDS + 2.0 * work * max(1.0, spread)
