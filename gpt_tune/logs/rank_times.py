"""Owns what each rank's own lines say about its speed: a bounded window of times a rank and kind of work."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gpt_tune.logs.columns import Floats
from gpt_tune.logs.file_ranks import NOBODY, Place
from gpt_tune.logs.prefixes import Prefix
from gpt_tune.logs.types import Step

WINDOW = 256  # iterations kept of each rank
MAX_WRITERS = 8192
SLOWEST = 16  # newest iterations of which the slowest rank is remembered, where the log names it
MANY_WRITERS = 256  # of so many, fewer iterations are compared
MAX_KINDS = 8
STEP = "step"  # the whole iteration, as a rank's own step lines say

Who = int | str  # a rank, or the name of a node or file whose lines name none


@dataclass(frozen=True, slots=True)
class RankTime:
    """What one rank spent on one kind of work in the iteration that was printed last, ms.

    rank None: only the least and the most over all ranks are known; most_rank: whose the most is, where that is said.
    """

    kind: str
    rank: int | None
    ms: float
    most_ms: float | None = None
    most_rank: int | None = None


@dataclass(slots=True)
class Kind:
    """Times of one kind of work."""

    by_writer: dict[Who, deque[tuple[int, float]]] = field(default_factory=dict)
    runs: dict[Who, int] = field(default_factory=dict)  # the run whose times these are
    spread: deque[tuple[int, float]] = field(
        default_factory=lambda: deque(maxlen=2 * WINDOW)
    )  # most / least - 1
    slowest: deque[int] = field(default_factory=lambda: deque(maxlen=SLOWEST))  # whose the most was


class RankTimes:
    """Times by rank. `version` rises with each, so that judging them can be left out while nothing is new."""

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {}
        self.hosts: dict[Who, str] = {}  # where a rank runs, as its lines say
        self.files: set[str] = set()  # writers that are named after their file, and are no nodes
        self.run = 0  # of what is read now: only ranks of one run are compared
        self.nodes: tuple[str, ...] = ()  # of the job, in rank order, where the scheduler says
        self.ranks: int | None = None
        self.version = 0

    def place(self, nodes: Sequence[str], ranks: int | None) -> None:
        """What the scheduler knows: the job's nodes in rank order, and how many ranks there are."""
        self.nodes, self.ranks = tuple(nodes), ranks

    def note(self, kind: str, who: Who, iteration: int, ms: float, host: str | None = None) -> None:
        """One time of one writer. Of an iteration printed twice the first counts."""
        times = self._kind(kind)
        if times is None or not ms > 0:
            return
        kept = times.by_writer.get(who)
        if kept is None:
            if len(times.by_writer) >= MAX_WRITERS:
                return
            kept = times.by_writer[who] = deque(maxlen=WINDOW)
        another = times.runs.get(who) != self.run
        if kept and iteration == kept[-1][0] and not another:
            return
        if kept and (another or iteration < kept[-1][0]):
            kept.clear()  # a new run: old times are another job's
        times.runs[who] = self.run
        kept.append((iteration, ms))
        if host is not None and who != host and len(self.hosts) < MAX_WRITERS:
            self.hosts.setdefault(who, host)
        self.version += 1

    def note_spread(
        self, kind: str, iteration: int, least: float, most: float, slowest: int | None = None
    ) -> None:
        """The least and the most over all ranks; slowest: whose the most is, where the log says it."""
        times = self._kind(kind)
        if times is not None and 0 < least <= most:
            times.spread.append((iteration, most / least - 1.0))
            if slowest is not None:
                times.slowest.append(slowest)
            self.version += 1

    def take(self, time: RankTime, iteration: int, prefix: Prefix) -> None:
        """A timer line; iteration: of the step printed last."""
        if time.rank is None:
            self.note_spread(time.kind, iteration, time.ms, time.most_ms or time.ms, time.most_rank)
        else:
            self.note(time.kind, time.rank, iteration, time.ms, prefix.host)

    def note_step(self, step: Step, prefix: Prefix, place: Place = NOBODY) -> None:
        """A step line: where every rank prints one of its own, they can be compared."""
        ms = step.step_time_ms
        if ms is None and step.tokens_per_second_per_gpu:
            ms = 1e6 / step.tokens_per_second_per_gpu  # only ratios between ranks count
        who = self._who(prefix, place)
        if ms is not None and who is not None:
            self.note(STEP, who, step.iteration, ms, prefix.host)

    def note_steps(self, iterations: Floats, times: Floats, prefix: Prefix, place: Place = NOBODY) -> None:
        """The same of many steps of one writer."""
        who = self._who(prefix, place)
        if who is not None:
            for iteration, ms in zip(iterations[-WINDOW:].tolist(), times[-WINDOW:].tolist()):
                self.note(STEP, who, int(iteration), ms, prefix.host)

    def _who(self, prefix: Prefix, place: Place) -> Who | None:
        if prefix.rank is not None:
            return prefix.rank
        if place.rank is not None:
            return place.rank
        if place.name and place.name != prefix.host:
            self.files.add(place.name)
            return place.name
        return prefix.host

    def _kind(self, name: str) -> Kind | None:
        kind = self.kinds.get(name)
        if kind is None and len(self.kinds) < MAX_KINDS:
            kind = self.kinds[name] = Kind()
        return kind

    def node_of(self, who: Who) -> str | None:
        """The node a writer is on, None when nothing tells."""
        if who in self.hosts:
            return self.hosts[who]
        if isinstance(who, str):
            return None if who in self.files else who
        if not self.nodes:
            return None
        most = max((w for k in self.kinds.values() for w in k.by_writer if isinstance(w, int)), default=0)
        if most < len(self.nodes) < (self.ranks or 0):
            return self.nodes[who]  # one task a node: labels number nodes
        each = (self.ranks or most + 1) // len(self.nodes)
        return self.nodes[who // each] if each and who // each < len(self.nodes) else None


def aligned(kind: Kind, least_writers: int) -> tuple[list[Who], Floats, Floats]:
    """(writers, iterations, times[writer, iteration]): iterations that most writers printed; NaN where one did not."""
    of_run = Counter(kind.runs.values())
    # Of several runs the newest of which enough ranks have printed.
    run = max((r for r, n in of_run.items() if n >= least_writers), default=None)
    by_writer = {who: times for who, times in kind.by_writer.items() if kind.runs.get(who) == run}
    counts: dict[int, int] = {}
    for times in by_writer.values():
        for iteration, _ in times:
            counts[iteration] = counts.get(iteration, 0) + 1
    wanted = max(least_writers, (len(by_writer) + 1) // 2)
    window = WINDOW if len(by_writer) <= MANY_WRITERS else WINDOW // 4
    iterations = sorted(i for i, n in counts.items() if n >= wanted)[-window:]
    place = {iteration: index for index, iteration in enumerate(iterations)}
    writers = sorted(by_writer, key=lambda w: (isinstance(w, str), w))
    table = np.full((len(writers), len(iterations)), np.nan)
    for row, who in enumerate(writers):
        for iteration, ms in by_writer[who]:
            if iteration in place:
                table[row, place[iteration]] = ms
    return writers, np.asarray(iterations, dtype=np.float64), table
