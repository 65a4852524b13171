"""Owns one row a node of a job: who runs there, what they last said, how far behind they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpt_tune.diagnosis.types import Finding
from gpt_tune.logs.lines import shown
from gpt_tune.workflows.nodes.samples import NodeSample
from gpt_tune.workflows.watching.writers import Writer

LEAST_SILENCE_SECONDS = 120.0
MAX_RANKS_SHOWN = 8
# What trainers call the step in their own lines; only the first of a line counts.
_STEP = re.compile(r"(?:\b[Ii]teration|\b[Ss]tep|\bglobal_step|\biter)[ :=]{1,16}(\d{1,12})\b")


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node. Seconds and iterations as of now; None is "its log does not say".

    lag: iterations behind the newest one any node names. silent_ranks: those that say nothing while the others
    of the job do. slower_by: how much longer it takes than the others (0.09 is 9 %), when that stands out.
    """

    node: str
    ranks: tuple[int, ...] = ()
    last_line: str = ""
    seen_seconds_ago: float | None = None
    iteration: int | None = None
    lag: int | None = None
    silent_ranks: tuple[int, ...] = ()
    slower_by: float | None = None
    sample: NodeSample | None = None

    @property
    def words(self) -> str:
        """What stands out about this node; empty when nothing does."""
        parts = []
        if self.slower_by is not None:
            parts.append(f"{self.slower_by:.0%} slower than the others")
        if self.silent_ranks:
            shown_ranks = ", ".join(map(str, self.silent_ranks[:MAX_RANKS_SHOWN]))
            more = " ..." if len(self.silent_ranks) > MAX_RANKS_SHOWN else ""
            parts.append(f"silent: rank {shown_ranks}{more}")
        if self.lag:
            parts.append(f"{self.lag} steps behind")
        if self.sample is not None and self.sample.xids:
            newest = self.sample.xids[-1]
            parts.append(f"Xid {newest.code} on GPU {newest.gpu}")
        if self.sample is not None and self.sample.problem:
            parts.append(self.sample.problem)
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "ranks": list(self.ranks),
            "last_line": self.last_line or None,
            "seen_seconds_ago": self.seen_seconds_ago,
            "iteration": self.iteration,
            "lag": self.lag,
            "silent_ranks": list(self.silent_ranks),
            "slower_by": self.slower_by,
            "words": self.words,
            "sample": self.sample.to_json() if self.sample is not None else None,
        }


def node_rows(
    writers: Sequence[Writer],
    now: float,
    nodes: Sequence[str] = (),
    gpus: int | None = None,
    samples: Mapping[str, NodeSample] | None = None,
    slower: Mapping[str, float] | None = None,
) -> list[NodeRow]:
    """One row a node, in the job's order, then nodes that only the log names.

    nodes: the job's, in rank order. gpus: ranks in all, for the nodes of ranks whose lines name none.
    """
    samples, slower = samples or {}, slower or {}
    places = _places(writers, nodes, gpus)
    placed: dict[str, list[Writer]] = {node: [] for node in nodes}
    for writer in writers:
        node = places.node_of(writer)
        if node is not None:
            placed.setdefault(node, []).append(writer)
    for node in samples:
        placed.setdefault(_full(node, nodes), [])
    known = {w.rank: w.seen for w in writers if w.rank is not None}
    newest = max((i for w in writers if (i := step_of(w.text)) is not None), default=None)
    awake = max((w.seen for w in writers), default=now)
    # A rank that never wrote is no sign of anything where most never do (trainers print on one rank).
    everyone = len(known) * 2 > places.ranks
    rows = []
    for index, (node, here) in enumerate(placed.items()):
        ranks = set() if places.task_a_node else {w.rank for w in here if w.rank is not None}
        if places.per_node and index < len(nodes):
            ranks |= set(range(index * places.per_node, (index + 1) * places.per_node))
        rows.append(
            _row(node, here, ranks, known, newest, awake, everyone, now, _of(samples, node), slower.get(node))
        )
    return rows


def _row(
    node: str, here: Sequence[Writer], ranks: set[int], known: Mapping[int, float], newest: int | None,
    awake: float, everyone: bool, now: float, sample: NodeSample | None, slower_by: float | None,
) -> NodeRow:  # fmt: skip
    last = max(here, key=lambda w: w.seen, default=None)
    iterations = [i for w in here if (i := step_of(w.text)) is not None]
    iteration = max(iterations, default=None)
    silent = tuple(r for r in sorted(ranks) if r in known and awake - known[r] > LEAST_SILENCE_SECONDS)
    if everyone:
        silent = tuple(r for r in sorted(ranks) if r in silent or r not in known)
    return NodeRow(
        node=shown(node),
        ranks=tuple(sorted(ranks)),
        last_line=shown(last.text).strip() if last is not None else "",
        seen_seconds_ago=max(0.0, now - last.seen) if last is not None else None,
        iteration=iteration,
        lag=newest - iteration if newest is not None and iteration is not None else None,
        silent_ranks=silent,
        slower_by=slower_by,
        sample=sample,
    )


def slow_nodes(findings: Iterable[Finding]) -> dict[str, float]:
    """By how much nodes are slower than the others (a share), as the diagnosis found."""
    found: dict[str, float] = {}
    for finding in findings:
        if finding.excess is not None and finding.host is not None and finding.dismissed is None:
            found[finding.host] = max(finding.excess, found.get(finding.host, 0.0))
    return found


def step_of(text: str) -> int | None:
    """The iteration that a line names, None when it names none."""
    match = _STEP.search(text)
    return int(match.group(1)) if match is not None else None


@dataclass(frozen=True, slots=True)
class _Places:
    """Which node a rank is on. hosts: as the log's own lines say; else ranks fill one node after the other."""

    nodes: Sequence[str]
    hosts: Mapping[int, str]
    ranks: int  # in all
    task_a_node: bool  # the launcher's labels number nodes, not ranks (torchrun under srun)

    @property
    def per_node(self) -> int:
        return self.ranks // len(self.nodes) if self.nodes and not self.task_a_node else 0

    def node_of(self, writer: Writer) -> str | None:
        rank = writer.rank
        name = writer.host or (self.hosts.get(rank) if rank is not None else None)
        if name is not None and ((full := _full(name, self.nodes)) in self.nodes or rank is None):
            return full
        if rank is None:
            return next((n for n in self.nodes if _names(writer.label, n)), None)
        index = rank // self.per_node if self.per_node else rank if self.task_a_node else -1
        return self.nodes[index] if 0 <= index < len(self.nodes) else name


def _places(writers: Sequence[Writer], nodes: Sequence[str], gpus: int | None) -> _Places:
    hosts = {w.rank: w.host for w in writers if w.rank is not None and w.host is not None}
    most = max((w.rank for w in writers if w.rank is not None), default=-1)
    ranks = gpus or most + 1
    return _Places(nodes, hosts, ranks, bool(nodes) and 0 <= most < len(nodes) < ranks and not hosts)


def _names(file: str, node: str) -> bool:
    """Whether a file's name holds a node's: `train-b200-1.out` is not of b200-12."""
    at = file.find(node)
    while at >= 0:
        around = file[at - 1 : at] + file[at + len(node) : at + len(node) + 1]
        if not any(c.isalnum() for c in around):
            return True
        at = file.find(node, at + 1)
    return False


def _full(name: str, nodes: Sequence[str]) -> str:
    """The job's own name of a node that a line names with or without its domain."""
    short = name.split(".")[0]
    return next((n for n in nodes if n == name or n.split(".")[0] == short), name)


def _of(samples: Mapping[str, NodeSample], node: str) -> NodeSample | None:
    short = node.split(".")[0]
    return samples.get(node) or next((s for n, s in samples.items() if n.split(".")[0] == short), None)
