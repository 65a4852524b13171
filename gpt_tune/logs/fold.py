"""Owns joining lines that say the same: 64 ranks with one warning become one line. Memory is bounded."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gpt_tune.logs.lines import LineFacts, read_line

WINDOW = 256  # different lines back that a line may still be joined to
MAX_RANKS = 65536
_REPEATED_FROM = 2
# What differs between two ranks that say the same: process ids, addresses, clocks, a rank or GPU of its own.
_CLOCK = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\b\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"|(?<=[IWEF])\d{4} \d\d:\d\d:\d\d[.,]\d{1,9} \d{0,9}"
)
# One pattern for each kind: those that begin with a plain text are found ten times faster than a choice of all.
_CLOCK_LIKE = re.compile(r":\d\d:")
_NAMED = (
    "pid", "PID", "tid", "rank", "Rank", "cudaDev", "device", "GPU", "gpu", "busId", "port",
)  # fmt: skip
_OWN_NUMBER = re.compile(
    r"\b(?:pid|PID|tid|local_rank|rank|Rank|cudaDev|device|GPU|gpu|busId|port)[ =:#]{1,2}[0-9a-fA-F:.]{1,16}"
)
_OWN = (
    re.compile(r"0x[0-9a-fA-F]{4,16}\b"),
    re.compile(r"\[(?:rank ?)?\d{1,7}\]"),
    re.compile(r"cuda:\d{1,3}"),
)


class _Line(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def source(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Folded:
    """One line to show. index: its number, for ever; one that comes again has grown.

    count: lines that say this. ranks, hosts: who said it, as far as the lines name them.
    """

    index: int
    text: str
    source: str
    count: int = 1
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """`64 ranks say the same`, `repeated 40 times`; empty for a line on its own."""
        return _words(self.count, len(self.ranks), len(self.hosts))


def _words(count: int, ranks: int, hosts: int) -> str:
    if count < _REPEATED_FROM:
        return ""
    if ranks > 1:
        return f"{ranks} ranks say the same"
    if hosts > 1:
        return f"{hosts} nodes say the same"
    return f"repeated {count} times"


@dataclass(slots=True)
class _Group:
    index: int
    text: str
    source: str
    count: int = 0
    ranks: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)

    def folded(self) -> Folded:
        return Folded(
            self.index,
            self.text,
            self.source,
            self.count,
            tuple(sorted(self.ranks)),
            tuple(sorted(self.hosts)),
        )


class Folder:
    """Joins lines as they come. A line is joined to an earlier one at most `window` different lines back."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = max(1, window)
        self._groups: OrderedDict[str, _Group] = OrderedDict()
        self._next = 0

    def add(self, lines: Sequence[_Line]) -> list[Folded]:
        """The lines that are new or have grown by these, each once, in the order of their index."""
        touched: dict[int, _Group] = {}
        for line in lines:
            group = self._group_of(read_line(line.text), line.source)
            touched[group.index] = group
        return [touched[index].folded() for index in sorted(touched)]

    def join(self, facts: LineFacts, source: str = "") -> tuple[int, str]:
        """One line that has been read already: the index of the line it belongs to, and that one's words now."""
        group = self._group_of(facts, source)
        return group.index, _words(group.count, len(group.ranks), len(group.hosts))

    def _group_of(self, facts: LineFacts, source: str) -> _Group:
        key = same_text(facts.body)
        group = self._groups.get(key) if key else None
        if group is None:
            group = _Group(self._next, facts.text, source)
            self._next += 1
            if key:
                self._keep(key, group)
        group.count += 1
        if facts.rank is not None and len(group.ranks) < MAX_RANKS:
            group.ranks.add(facts.rank)
        if facts.host is not None and len(group.hosts) < MAX_RANKS:
            group.hosts.add(facts.host)
        return group

    def _keep(self, key: str, group: _Group) -> None:
        self._groups[key] = group
        if len(self._groups) > self._window:
            self._groups.popitem(last=False)


def same_text(body: str) -> str:
    """What two ranks that say the same have in common; empty for a line that is never folded (blank).

    Figures are kept: two step lines differ, and so do two losses.
    """
    if _CLOCK_LIKE.search(body):
        body = _CLOCK.sub("", body)
    if any(name in body for name in _NAMED):
        body = _OWN_NUMBER.sub("#", body)
    for pattern in _OWN:
        body = pattern.sub("#", body)
    return body.strip()


@dataclass(frozen=True, slots=True)
class _Plain:
    text: str
    source: str = ""


def fold(lines: Iterable[str], window: int = WINDOW) -> list[Folded]:
    """All lines at once, each with its final count."""
    found = {f.index: f for f in Folder(window).add([_Plain(text) for text in lines])}
    return list(found.values())
