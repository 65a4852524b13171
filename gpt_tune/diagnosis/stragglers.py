"""Owns finding ranks or nodes that are slower than the others, from times that each rank printed itself.

Compared is each iteration with the same iteration of the others, so that what slows everybody does not count;
judged is the median over the newest iterations, against the scatter of the healthy ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpt_tune.diagnosis.types import Finding
from gpt_tune.logs.columns import Floats
from gpt_tune.logs.facts import RunFacts
from gpt_tune.logs.rank_times import STEP, Kind, RankTimes, Who, aligned

LEAST_WRITERS = 3  # of two, nobody can say which is the slow one
LEAST_ITERATIONS = 8
RECENT = 16  # iterations judged
LEAST_EXCESS = 0.05  # of the others' time
SIGMAS = 6.0  # robust standard deviations of the healthy
STEADY = 0.8  # share of recent iterations in which it has to be slow
LARGEST_SHARE = 0.34  # more slow ranks than that are no stragglers: they do other work
SPREAD_GROWTH = 0.20  # most over least: by how much it must have grown
UNNAMED = "; the log does not say which."
PIPELINED = ("megatron-lm", "megatron-deepspeed", "gpt-neox", "nemo", "megatron-bridge")


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank or node that takes excess (a share) longer than the others, since this iteration (None: always)."""

    name: str
    rank: int | None
    node: str | None
    excess: float
    since: int | None
    kind: str
    others: int


def judge(times: RankTimes, facts: RunFacts, trainer: str | None) -> list[Finding]:
    """F222 for each straggler, the slowest first; F223 when ranks drift apart and the log names none."""
    found: dict[tuple[int | None, str | None], Straggler] = {}
    for name, kind in times.kinds.items():
        for straggler in _of_kind(name, kind, times, facts, trainer):
            key = (straggler.rank, straggler.node)
            if key not in found or found[key].excess < straggler.excess:
                found[key] = straggler
    ordered = sorted(found.values(), key=lambda s: -s.excess)
    findings = [_finding(s) for s in ordered[:8]]
    if not findings:
        findings = [f for name, kind in times.kinds.items() if (f := _drifting(name, kind)) is not None][:1]
    return findings


def _of_kind(
    name: str, kind: Kind, times: RankTimes, facts: RunFacts, trainer: str | None
) -> list[Straggler]:
    if len(kind.by_writer) < LEAST_WRITERS:
        return []
    writers, iterations, table = aligned(kind, LEAST_WRITERS)
    if len(iterations) < LEAST_ITERATIONS:
        return []
    nodes = [times.node_of(w) for w in writers]
    stages, comparable = _stages(name, writers, facts, trainer)
    found: list[Straggler] = []
    for stage in sorted(set(stages)):
        rows = [i for i, s in enumerate(stages) if s == stage]
        found += _of_stage(name, rows, writers, nodes, iterations, table, comparable)
    return found


def _of_stage(
    name: str, rows: Sequence[int], writers: Sequence[Who], nodes: Sequence[str | None], iterations: Floats,
    table: Floats, comparable: bool,
) -> list[Straggler]:  # fmt: skip
    """Nodes first: all ranks of a slow node are slow; then single ranks of the others."""
    by_node: dict[str, list[int]] = {}
    for row in rows:
        by_node.setdefault(nodes[row] or f"\0{row}", []).append(row)
    several = any(len(members) > 1 for members in by_node.values())
    slow_rows: set[int] = set()
    found: list[Straggler] = []
    if several and len(by_node) >= LEAST_WRITERS:
        means = np.stack([_median(table[members], 0) for members in by_node.values()])
        for index, excess, since in _slow(means, iterations, comparable):
            node = list(by_node)[index]
            members = by_node[node]
            slow_rows |= set(members)
            if not node.startswith("\0"):
                found.append(Straggler(node, None, node, excess, since, name, len(by_node) - 1))
    if len(rows) >= LEAST_WRITERS:
        for index, excess, since in _slow(table[list(rows)], iterations, comparable):
            if rows[index] in slow_rows:
                continue
            who, node_name = writers[rows[index]], nodes[rows[index]]
            rank = who if isinstance(who, int) else None
            label = str(who)
            if rank is not None:
                label = f"Rank {who}" + (f" on {node_name}" if node_name else "")
            found.append(Straggler(label, rank, node_name, excess, since, name, len(rows) - 1))
    return found


def _slow(table: Floats, iterations: Floats, comparable: bool) -> list[tuple[int, float, int | None]]:
    """(row, excess, since) of rows that stand out. comparable: they do the same work, so one may always be slow."""
    ratio = table / _median(table, 0) - 1.0
    recent = ratio[:, -RECENT:]
    excess = _median(recent, 1)
    known = np.isfinite(excess)
    if known.sum() < LEAST_WRITERS:
        return []
    usual = float(np.median(excess[known]))
    scatter = 1.4826 * float(np.median(np.abs(excess[known] - usual)))
    limit = max(LEAST_EXCESS, usual + SIGMAS * scatter)
    # A rank's own scatter counts too: a noisy one is not a slow one.
    steady = np.nanmean(np.where(np.isfinite(recent), recent > 0.5 * limit, np.nan), axis=1)
    rows = np.flatnonzero(known & (excess > limit) & (steady >= STEADY))
    if not len(rows) or len(rows) > max(1.0, LARGEST_SHARE * int(known.sum())):
        return []
    found = []
    for row in rows.tolist():
        since = _since(ratio[row], float(excess[row]), iterations)
        if since is None and not comparable:
            continue
        found.append((row, float(excess[row]), since))
    return found


def _since(ratio: Floats, excess: float, iterations: Floats) -> int | None:
    """From which iteration on a row is slow; None when it always was, as far back as is known."""
    slow = np.where(np.isfinite(ratio), ratio > 0.5 * excess, True)
    quick = ~slow
    # One quick iteration among slow ones is noise; three of five are not.
    window = np.convolve(quick, np.ones(5), mode="same") >= 3
    last = np.flatnonzero(window & quick)
    if not len(last) or last[-1] < 2:
        return None
    return int(iterations[min(int(last[-1]) + 1, len(iterations) - 1)])


def _stages(
    name: str, writers: Sequence[Who], facts: RunFacts, trainer: str | None
) -> tuple[list[int], bool]:
    """Pipeline stage of each writer, and whether those of one stage do the same work.

    A whole step takes every rank the same, whatever its stage; other times differ from stage to stage.
    """
    stages = facts.pipeline_parallel
    world = facts.gpus
    alone = [0] * len(writers)
    if name == STEP or stages == 1:
        return alone, True
    if stages is None or not world or world % stages or not all(isinstance(w, int) for w in writers):
        return alone, trainer not in PIPELINED
    found = [min(int(w) // (world // stages), stages - 1) for w in writers]
    if min(found.count(s) for s in set(found)) < LEAST_WRITERS:
        return alone, False
    return found, True


def _finding(straggler: Straggler) -> Finding:
    of_node = straggler.rank is None and straggler.name == straggler.node
    who = f"Node {straggler.node}" if of_node else straggler.name
    since = f" since iteration {straggler.since}" if straggler.since is not None else ""
    what = "" if straggler.kind == STEP else f" in {straggler.kind}"
    unit = "nodes" if of_node else "files" if straggler.rank is None else "ranks"
    text = f"{who} is {straggler.excess:.0%} slower{what} than the others{since} ({straggler.others} other {unit})."
    fix = (
        "Look at its clocks, temperature and power (gpt-tune nodes ID --sample); if it stays slow, resume "
        "without it (resubmit --with-fix)."
    )
    return Finding(
        "F222", "warning", text, fix, rank=straggler.rank, host=straggler.node, iteration=straggler.since,
        excess=straggler.excess, action="exclude_host" if straggler.node is not None else None,
    )  # fmt: skip


def _drifting(name: str, kind: Kind) -> Finding | None:
    """The slowest rank falls behind the quickest, and only the least and the most are printed."""
    if len(kind.spread) < LEAST_ITERATIONS + RECENT:
        return None
    iterations = np.asarray([i for i, _ in kind.spread], dtype=np.float64)
    spread = np.asarray([s for _, s in kind.spread], dtype=np.float64)
    usual, now = float(np.quantile(spread[:-RECENT], 0.25)), float(np.median(spread[-RECENT:]))
    quick = np.flatnonzero(spread < (usual + now) / 2)
    if now - usual < SPREAD_GROWTH or not len(quick) or quick[-1] >= len(spread) - RECENT // 2:
        return None
    before = spread[: int(quick[-1]) + 1]
    # Now and then is no drift: before it began, nearly every iteration was quick.
    if len(before) < LEAST_ITERATIONS or float(np.quantile(before, 0.9)) >= (usual + now) / 2:
        return None
    since = int(iterations[int(quick[-1]) + 1])
    rank = _named(kind)
    who = "The slowest rank" if rank is None else f"Rank {rank}"
    which = UNNAMED if rank is None else "."
    text = (
        f"{who} takes {now:.0%} longer than the quickest for {name} since iteration {since} "
        f"({usual:.0%} before){which}"
    )
    fix = (
        "Print every rank's time (--timing-log-option all), or look at the nodes: gpt-tune nodes ID --sample."
    )
    return Finding("F223", "warning", text, fix, rank=rank, iteration=since)


def _named(kind: Kind) -> int | None:
    """The rank that was the slowest nearly always of late, where the log names it."""
    if len(kind.slowest) < RECENT // 2:
        return None
    rank, times = Counter(kind.slowest).most_common(1)[0]
    return rank if times >= STEADY * len(kind.slowest) else None


def named_by(finding: Finding, rank: int, why: str) -> Finding:
    """F223 of a rank that something else in the log points to."""
    text = finding.text.replace(UNNAMED, f"; {why} to rank {rank}.")
    return replace(finding, rank=rank, text=text)


def _median(table: Floats, axis: int) -> Floats:
    """NaN only where nothing is known, without numpy's warning about it."""
    known = np.isfinite(table).any(axis=axis)
    filled = np.where(np.expand_dims(known, axis), table, 0.0)
    return np.where(known, np.nanmedian(filled, axis=axis), np.nan)
