"""Owns timers that trainers print rank by rank: Megatron's `across ranks` blocks and DeepSpeed's old breakdown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpt_tune.logs.formats.base import Format, Item, Line, decimal
from gpt_tune.logs.rank_times import RankTime

# Work that a rank does by itself. Timers of communication measure waiting for others: there the slow rank is quick.
# batch-generator is left out: only some ranks read data, so its times differ by nature.
OWN_WORK = frozenset(
    {
        "forward-compute",
        "backward-compute",
        "forward-backward",
        "forward_microstep",
    }
)
_NUMBER = r"([\d.]{1,20})"
_NAME = re.compile(r"^\s{0,8}([a-z][\w-]{1,60}?) ?\.{0,64}:\s*$")
_RANK = re.compile(rf"^\s{{0,12}}rank\s{{1,8}}(\d{{1,7}}): {_NUMBER}\s*$")
_BOTH = re.compile(rf"^\s{{0,8}}([a-z][\w-]{{1,60}}?) ?\.{{0,64}}: \({_NUMBER}, {_NUMBER}\)\s*$")
_ENGINE = re.compile(rf"\brank=(\d{{1,7}}) time \(ms\) \| ([a-z_]{{1,40}}): {_NUMBER}")
# Megatron's straggler detector (--log-straggler): the time of what it traces, least and most, each with its rank.
_DETECTOR = re.compile(rf"MnRtt/Rnk: {_NUMBER}ms/\d{{1,7}} \| MxRtt/Rnk: {_NUMBER}ms/(\d{{1,7}})")
TRACED = "traced work"
MAX_LINES = 100_000  # of one block
ALL_BLOCKS, EVERY = 64, 8  # of a long past, every block at first, then every eighth


class RankTimers(Format):
    """`times across ranks (ms):` with a line a rank, `(min, max) time across ranks (ms):`, `rank=5 time (ms) |`."""

    name = "rank-timers"
    # Megatron's timers of its last rank ("time (ms) | forward-compute") stand beside every step: they must be no
    # candidates, or reading a log takes ten times as long.
    triggers = ("across ranks (ms)", "forward_microstep: ", "MxRtt/Rnk: ")

    def __init__(self) -> None:
        self._left = 0
        self._timer = ""
        self._blocks = 0

    @property
    def pending(self) -> bool:
        return self._left > 0 and not self.apart

    def feed(self, line: Line) -> Iterable[Item]:
        if not self.opens(line.text):
            yield from self.times(line.text)

    def opens(self, text: str) -> bool:
        """Whether a block begins with this line; it is pending then, unless it is left out."""
        if "across ranks (ms)" not in text:
            return False
        self._blocks += 1
        wanted = not self.hurried or self._blocks <= ALL_BLOCKS or self._blocks % EVERY == 0
        self._left, self._timer = (MAX_LINES if wanted else 0), ""
        return True

    def times(self, text: str) -> Iterable[RankTime]:
        """What a line without its prefixes says; one that does not belong to the block ends it."""
        if "time (ms) | forward_microstep" in text:
            engine = _ENGINE.search(text)
            if engine is not None and engine.group(2) in OWN_WORK:
                yield from _time(engine.group(2), int(engine.group(1)), engine.group(3))
            return
        if "MxRtt/Rnk: " in text:
            detected = _DETECTOR.search(text)
            if detected is not None:
                yield from _time(TRACED, None, detected.group(1), detected.group(2), int(detected.group(3)))
            return
        self._left -= 1
        # The last character tells which of the three a line can be.
        last = text.rstrip()[-1:]
        if last == ")":
            both = _BOTH.match(text)
            if both is not None:
                if both.group(1) in OWN_WORK:
                    yield from _time(both.group(1), None, both.group(2), both.group(3))
                return
        elif last == ":":
            name = _NAME.match(text)
            if name is not None:
                self._timer = name.group(1)
                return
        else:
            rank = _RANK.match(text)
            if rank is not None:
                if self._timer in OWN_WORK:
                    yield from _time(self._timer, int(rank.group(1)), rank.group(2))
                return
        self._left = 0


def _time(
    kind: str, rank: int | None, ms: str, most: str | None = None, most_rank: int | None = None
) -> Iterable[RankTime]:
    value, greatest = decimal(ms), decimal(most) if most is not None else None
    if value is not None and (most is None or greatest is not None):
        yield RankTime(kind, rank, value, greatest, most_rank)
