"""Owns going through a log for what it complains about: signatures on lines, and on lines that were wrapped."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gpt_tune.diagnosis.signatures import Signature, candidates, scanner
from gpt_tune.logs.clean import split_lines
from gpt_tune.logs.file_ranks import NOBODY, Place, apply
from gpt_tune.logs.prefixes import Prefix
from gpt_tune.logs.prefixes import read as read_prefix
from gpt_tune.logs.scan import Block

BEFORE, AFTER = 4, 9  # lines joined around a suspicious one: messages that were wrapped, or blocks of lines
MAX_BLOCK = 64  # suspicious lines in one go before what was joined is looked at
MAX_TEXT = 4096  # of one line; of joined lines twice as much
MAX_WINDOWS = 4000  # joined texts per file: a log full of errors says the same again and again
MAX_RANKS = 4096
EXCERPT = 240
KEPT_BYTES = 65536  # the end of a block in which nothing stands: what the log ends with may matter
_BOX = re.compile(r"^[\s│┃|]{0,8}(?:❱ )?|[\s│┃]{1,200}$")


@dataclass(frozen=True, slots=True)
class Numbered:
    """One line: its index among all lines read of its file (from 0), its line number there, and itself.

    order: over all files, in which they were read.
    """

    index: int
    number: int | None
    text: str
    order: int


@dataclass(frozen=True, slots=True)
class _Batch:
    """Lines fed at once, and what the first of them is numbered."""

    index: int
    order: int
    lines: Sequence[str]
    numbers: list[int | None]

    def line(self, place: int) -> Numbered:
        return Numbered(self.index + place, self.numbers[place], self.lines[place], self.order + place)


@dataclass(slots=True)
class Hit:
    """All that was found of one signature: the first place, how often, and who said it."""

    signature: Signature
    groups: dict[str, str]
    source: str
    index: int
    number: int | None
    order: int
    time: float | None
    rank: int | None
    local_rank: int | None
    host: str | None
    excerpt: str
    count: int = 1
    last_index: int = 0
    ranks: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    more: list[dict[str, str]] = field(default_factory=list)  # groups of the next few places


@dataclass(slots=True)
class _File:
    """Where reading one file stands."""

    index: int = 0
    number: int | None = 1
    before: deque[Numbered] = field(default_factory=lambda: deque(maxlen=BEFORE))
    block: list[Numbered] = field(default_factory=list)
    suspicious: set[int] = field(default_factory=set)  # indexes within the file, of the block
    matched: set[tuple[int, str]] = field(default_factory=set)  # (index, id) on single lines of the block
    quiet: int = 0  # lines since the last suspicious one
    windows: int = 0
    last_lines: deque[Numbered] = field(default_factory=lambda: deque(maxlen=200))


class Collector:
    """Reads lines in batches and keeps one Hit a signature; memory stays small whatever the log."""

    def __init__(self) -> None:
        self.hits: dict[str, Hit] = {}
        self.hosts: set[str] = set()
        self.overflows: list[tuple[float, float]] = []  # loss scale before and after, DeepSpeed's own lines
        self.places: dict[str, Place] = {}  # who wrote each file
        self._files: dict[str, _File] = {}
        self._order = 0

    def feed(
        self,
        lines: Sequence[str],
        source: str = "",
        first_line: int | None = None,
        transient: Iterable[int] = (),
    ) -> None:
        """Reads clean lines. first_line: number of the first one in its file, where that is known.

        transient: indexes of progress-bar states, which share the line number of what overwrote them.
        """
        state = self._files.setdefault(source, _File())
        state.number = first_line if first_line is not None else state.number
        # The leading line feed lets a literal ask for a line's beginning.
        text = ("\n" + "\n".join(lines)).encode("utf-8", "replace")
        marked = [n - 1 for n in scanner().lines(Block(text)).numbers.tolist()]
        numbers = _numbers(len(lines), state.number, set(transient))
        batch = _Batch(state.index, self._order, lines, numbers)
        self._walk(state, source, batch, [n for n in marked if 0 <= n < len(lines)])
        kept = state.last_lines.maxlen or 0
        state.last_lines.extend(batch.line(i) for i in range(max(0, len(lines) - kept), len(lines)))
        state.index += len(lines)
        state.number = numbers[len(lines)]
        self._order += len(lines)

    def feed_block(self, raw: bytes, source: str = "", first_line: int | None = None) -> None:
        """Reads whole raw lines, splitting them only where something stands in them."""
        small = len(raw) <= KEPT_BYTES or b"\r" in raw or b"\x1b" in raw
        if small or len(scanner().lines(Block(raw)).numbers):
            lines, transient = split_lines(raw)
            self.feed(lines, source, first_line, transient)
            return
        state = self._files.setdefault(source, _File())
        state.number = first_line if first_line is not None else state.number
        cut = raw.rfind(b"\n", 0, len(raw) - KEPT_BYTES) + 1
        skipped = raw.count(b"\n", 0, cut)
        if skipped:
            self._close(state, source)
            state.before.clear()
            state.index += skipped
            self._order += skipped
            state.number = None if state.number is None else state.number + skipped
        lines, _ = split_lines(raw[cut:])
        self.feed(lines, source)

    @property
    def lines(self) -> int:
        """Lines read so far."""
        return sum(state.index for state in self._files.values())

    def settle(self) -> None:
        """Looks at what was still waiting for more lines."""
        for source, state in self._files.items():
            self._close(state, source)

    def last_lines(self) -> dict[str, list[Numbered]]:
        """The end of each file."""
        return {source: list(state.last_lines) for source, state in self._files.items()}

    def _walk(self, state: _File, source: str, batch: _Batch, marked: list[int]) -> None:
        """Goes from one suspicious line to the next, with the lines around them."""
        position = 0
        for mark in [*marked, None]:
            stop = len(batch.lines) if mark is None else mark
            while position < stop and state.block:
                self._add_quiet(state, source, batch.line(position))
                position += 1
            state.before.extend(batch.line(place) for place in range(max(position, stop - BEFORE), stop))
            if mark is not None:
                self._add_suspicious(state, source, batch.line(mark))
                position = mark + 1

    def _add_quiet(self, state: _File, source: str, line: Numbered) -> None:
        state.block.append(line)
        state.quiet += 1
        if state.quiet >= AFTER:
            self._close(state, source)

    def _add_suspicious(self, state: _File, source: str, line: Numbered) -> None:
        if not state.block:
            state.block.extend(state.before)
            state.before.clear()
        state.block.append(line)
        state.suspicious.add(line.index)
        state.quiet = 0
        for signature, groups, prefix in match_line(line.text):
            self._keep(signature, groups, prefix, source, line)
            if signature.role != "exception":
                state.matched.add((line.index, signature.id))
        if len(state.suspicious) >= MAX_BLOCK:
            self._close(state, source)

    def _close(self, state: _File, source: str) -> None:
        """Looks at the block's joined lines, for what no single line said."""
        block, state.block = state.block, []
        suspicious, state.suspicious = state.suspicious, set()
        matched, state.matched = state.matched, set()
        state.quiet = 0
        state.before.extend(block[-BEFORE:])
        for place, line in enumerate(block):
            if line.index not in suspicious or state.windows >= MAX_WINDOWS:
                continue
            state.windows += 1
            results = match_block(block, place)
            if line.index not in {index for index, _ in matched}:
                near = block[max(0, place - BEFORE) : place + AFTER]
                found = {identity for index, identity in matched if near[0].index <= index <= near[-1].index}
                results += match_joined(near, found)
            for signature, groups in results:
                self._keep(signature, groups, read_prefix(line.text), source, line)
                matched.add((line.index, signature.id))

    def _keep(
        self, signature: Signature, groups: dict[str, str], prefix: Prefix, source: str, line: Numbered
    ) -> None:
        prefix = apply(prefix, self.places.get(source, NOBODY))
        if prefix.host:
            self.hosts.add(prefix.host)
        if signature.id == "C6":
            self._overflow(groups)
        elif signature.id == "C5":
            self._forget_handled(source, line.index)
        rank = _integer(groups.get("rank"))
        rank = prefix.rank if rank is None else rank
        host = groups.get("host") or prefix.host
        hit = self.hits.get(signature.id)
        if hit is None:
            local = _integer(groups.get("local_rank"))
            self.hits[signature.id] = hit = Hit(
                signature, groups, source, line.index, line.number, line.order, prefix.time, rank,
                prefix.local_rank if local is None else local, host, line.text.strip()[:EXCERPT],
            )  # fmt: skip
        else:
            hit.count += 1
            _complete(hit, groups, rank, host)
        hit.last_index = line.index
        if rank is not None and len(hit.ranks) < MAX_RANKS:
            hit.ranks.add(rank)
        if host is not None and len(hit.hosts) < MAX_RANKS:
            hit.hosts.add(host)

    def _forget_handled(self, source: str, index: int) -> None:
        """The exception just before was handled; the one raised meanwhile is what ended the program."""
        hit = self.hits.get("F210")
        if hit is not None and hit.source == source and hit.count == 1 and index - hit.index <= BEFORE:
            del self.hits["F210"]

    def _overflow(self, groups: dict[str, str]) -> None:
        try:
            before = float(groups["from"])
            after = float(groups.get("to") or before)
        except (KeyError, ValueError):
            return
        if len(self.overflows) < MAX_RANKS:
            self.overflows.append((before, after))


def match_line(text: str) -> list[tuple[Signature, dict[str, str], Prefix]]:
    """The first signature that fits a line, and every context entry that does."""
    text = text[:MAX_TEXT]
    prefix = read_prefix(text)
    body = text[prefix.end :]
    found: list[tuple[Signature, dict[str, str], Prefix]] = []
    taken = False
    for signature in candidates(text):
        context = signature.role == "context"
        if signature.window or (taken and not context):
            continue
        groups = signature.match(text, body)
        if groups is not None:
            found.append((signature, groups, prefix))
            taken = taken or not context
    return found


def match_block(block: Sequence[Numbered], place: int) -> list[tuple[Signature, dict[str, str]]]:
    """Signatures that want several lines, beginning with this one."""
    results = []
    for signature in candidates(block[place].text):
        if signature.window:
            joined = " ".join(_bodies(block[place : place + signature.window]))[: 2 * MAX_TEXT]
            groups = signature.match(joined, joined)
            if groups is not None:
                results.append((signature, groups))
    return results


def match_joined(near: Sequence[Numbered], found: set[str]) -> list[tuple[Signature, dict[str, str]]]:
    """Signatures that only joined lines show: wrapped at words, or cut in the middle of one.

    found: ids already known of these lines.
    """
    bodies = _bodies(near)
    spaced = " ".join(bodies)[: 2 * MAX_TEXT]
    glued = "".join(line.text for line in near)[: 2 * MAX_TEXT]
    results = []
    for joined in (spaced, glued):
        for signature in candidates(joined):
            if signature.role == "exception" or signature.window or signature.id in found:
                continue
            if any(signature.match(line.text, body) is not None for line, body in zip(near, bodies)):
                continue  # a single line says it; there something more particular was found
            groups = signature.match(joined, joined)
            if groups is not None:
                results.append((signature, groups))
                found.add(signature.id)
    return results


def _bodies(lines: Sequence[Numbered]) -> list[str]:
    """Lines without prefixes and without the frame that rich draws around tracebacks."""
    return [_BOX.sub("", line.text[read_prefix(line.text).end :])[:MAX_TEXT] for line in lines]


def _complete(hit: Hit, groups: dict[str, str], rank: int | None, host: str | None) -> None:
    """Takes over what a later place adds: the same rank's host, or figures the first place lacked."""
    same = hit.rank is None or rank is None or hit.rank == rank
    if same:
        hit.rank = rank if hit.rank is None else hit.rank
        if hit.host is None and (groups.get("host") or (rank is not None and rank == hit.rank)):
            hit.host = host
        for name, value in groups.items():
            hit.groups.setdefault(name, value)
    if len(hit.more) < 64:
        hit.more.append(groups)


def _numbers(count: int, first: int | None, transient: set[int]) -> list[int | None]:
    """Line numbers of a batch, and the number of the line after it."""
    if first is None:
        return [None] * (count + 1)
    if not transient:
        return list(range(first, first + count + 1))
    numbers: list[int | None] = []
    number = first
    for index in range(count):
        numbers.append(number)
        number += index not in transient
    return [*numbers, number]


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None
