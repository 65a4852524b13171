"""Owns rank timers in whole blocks of the past: they stand beside every step, so they are taken out beforehand.

What is left are long runs of step lines, which are read as columns (see logs.bulk).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpt_tune.logs.clean import plain_line
from gpt_tune.logs.columns import Floats
from gpt_tune.logs.formats.base import Line
from gpt_tune.logs.formats.rank_timers import RankTimers
from gpt_tune.logs.prefixes import Prefix
from gpt_tune.logs.rank_times import RankTime, RankTimes
from gpt_tune.logs.reading import Source, make_line
from gpt_tune.logs.scan import Block, Lines


class Timed(NamedTuple):
    """A timer line, by its number in the file."""

    number: int
    time: RankTime
    prefix: Prefix


class Waiting:
    """Timers that were read before the steps they stand behind."""

    def __init__(self, times: RankTimes) -> None:
        self._times = times
        self._queue: deque[Timed] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def extend(self, timed: Sequence[Timed]) -> None:
        self._queue.extend(timed)

    def until(self, number: int, iteration: int) -> None:
        """Takes the timers before this line; iteration: of the step before it."""
        while self._queue and self._queue[0].number < number:
            _, time, prefix = self._queue.popleft()
            self._times.take(time, iteration, prefix)

    def along(self, numbers: Sequence[int], iterations: Floats, first: int, before: int) -> None:
        """Takes the timers between step lines that were read as columns.

        numbers: of the step lines within a block whose first line has the number `first`; before: the iteration of
        the step before them.
        """
        while self._queue and self._queue[0].number < first + numbers[-1]:
            number, time, prefix = self._queue.popleft()
            place = bisect_left(numbers, number - first)
            self._times.take(time, int(iterations[place - 1]) if place else before, prefix)


def take_out(block: Block, found: Lines, state: Source) -> tuple[Lines, list[Timed]]:
    """The candidate lines without those that only rank timers want, and what these say."""
    index, timers = next((i, f) for i, f in enumerate(state.formats) if isinstance(f, RankTimers))
    bit = np.uint64(1 << index)
    mine = (found.groups & bit) != 0
    if not mine.any() and not timers.pending:
        return found, []
    timed = _read(block, found, timers, found.numbers[mine].tolist(), state)
    timers.apart = True
    groups = found.groups & ~bit
    keep = groups != 0
    left = found._replace(
        starts=found.starts[keep], stops=found.stops[keep], numbers=found.numbers[keep], groups=groups[keep]
    )
    return left, timed


def _read(block: Block, found: Lines, timers: RankTimers, headers: list[int], state: Source) -> list[Timed]:
    """Feeds the reader its lines, and those behind them as long as it asks for more."""
    first = state.lines
    timed: list[Timed] = []
    number = 0
    head = Line("", "", make_line("").prefix)
    triggers = [t.encode() for t in timers.triggers]
    for header in [*headers, found.total]:
        while timers.pending and number < header:
            head = _line(found.line(block, number), head, state)
            timed += [Timed(first + number, time, head.prefix) for time in timers.times(head.text)]
            number += 1
        if header == found.total:
            break
        number = header + 1
        raw = found.line(block, header)
        if timers.opens(raw.decode("utf-8", "replace")):
            continue
        if timers.pending or any(t in raw for t in triggers):
            head = _line(raw, head, state)
            timed += [Timed(first + header, time, head.prefix) for time in timers.times(head.text)]
    return timed


def _line(raw: bytes, before: Line, state: Source) -> Line:
    """A line of a block of timers, whose prefix as a rule is that of the line before it."""
    text = plain_line(raw)
    end = before.prefix.end
    # A name behind blanks begins no further prefix.
    same = before.full[:end] == text[:end] and text[end : end + 1] == " "
    if same and before.full and text[end:].lstrip()[:1].isalpha():
        return Line(text, text[end:], before.prefix)
    return make_line(text, state.place)
