"""Owns turning one `sinfo` call into partitions and groups of like nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpt_tune.schedulers import columns, hostlist, slurm_words
from gpt_tune.schedulers.base import NodeGroup, Partition

COLUMNS: tuple[columns.Column, ...] = (
    ("Partition", 128), ("Available", 16), ("Time", 24), ("DefaultTime", 24), ("Size", 32), ("StateLong", 48),
    ("Nodes", 12), ("CPUs", 16), ("Memory", 24), ("Features", 512), ("Gres", 512), ("GresUsed", 1024),
    ("NodeList", 4096),
)  # fmt: skip
# --exact: without it sinfo merges unlike nodes and prints `192+`.
ARGUMENTS = ("sinfo", "--noheader", "--exact", "-O", columns.argument(COLUMNS))

_USABLE = ("idle", "mixed", "allocated")


@dataclass(slots=True)
class _Group:
    nodes: int = 0
    by_state: Counter[str] = field(default_factory=Counter)
    gpus_free: int = 0
    names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Partition:
    row: dict[str, str]
    groups: dict[tuple[str, int, int, int, tuple[str, ...]], _Group] = field(default_factory=dict)


def parse(output: bytes) -> tuple[tuple[Partition, ...], tuple[str, ...]]:
    """Partitions in sinfo's order, and notes about what a NodeGroup cannot say."""
    return of_rows(columns.rows(output, COLUMNS))


def of_rows(rows: Iterable[dict[str, str]]) -> tuple[tuple[Partition, ...], tuple[str, ...]]:
    """The same from rows with the names and notations of COLUMNS."""
    partitions: dict[str, _Partition] = {}
    notes: dict[str, None] = {}
    for row in rows:
        name = row["Partition"].removesuffix("*")
        partition = partitions.setdefault(name, _Partition(row))
        if row["Partition"].endswith("*"):
            partition.row = row
        if _number(row["Nodes"]):
            _add(partition, row, notes)
    return tuple(_finished(name, p) for name, p in partitions.items()), tuple(notes)


def _add(partition: _Partition, row: dict[str, str], notes: dict[str, None]) -> None:
    configured = slurm_words.gpus(row["Gres"])
    main = main_type(configured)
    others = [g for g in configured if main is not None and g.type != main.type]
    if others:
        also = ", ".join(f"{g.count} x {g.type or 'GPU'}" for g in others)
        notes[f"{_names(row)} also offer {also} a node, which are not counted."] = None
    kind, per_node = (main.type, main.count) if main else ("", 0)
    features = tuple(f for f in re.split(r"[,&]", row["Features"]) if f and f != "(null)")
    key = (kind, per_node, _number(row["CPUs"]), _number(row["Memory"]), features)
    group = partition.groups.setdefault(key, _Group())
    nodes = _number(row["Nodes"])
    state = slurm_words.node_state(row["StateLong"])
    group.nodes += nodes
    group.by_state[state] += nodes
    # A completing node's GPUs are given back already but nothing can start there yet.
    if state in _USABLE and "comp" not in row["StateLong"].lower():
        used = sum(g.count for g in slurm_words.gpus(row["GresUsed"]) if g.type == kind or not g.type)
        group.gpus_free += nodes * max(0, per_node - used)
    if row["NodeList"]:
        group.names.append(_names(row))


def main_type(configured: list[slurm_words.Gpus]) -> slurm_words.Gpus | None:
    """The GPU type a node is known for: whole GPUs before slices, then the most; like types summed."""
    totals: dict[str, int] = {}
    for g in configured:
        totals[g.type] = totals.get(g.type, 0) + g.count
    merged = [slurm_words.Gpus(t, n) for t, n in totals.items() if n > 0]
    return max(merged, key=lambda g: (not g.is_slice, g.count), default=None)


def _names(row: dict[str, str]) -> str:
    """The hostlist; one cut at the column's width loses its last, broken part and says so."""
    text = row["NodeList"]
    width = dict(COLUMNS)["NodeList"]
    return text.rsplit(",", 1)[0] + ",..." if len(text.encode()) >= width else text


def _finished(name: str, partition: _Partition) -> Partition:
    row = partition.row
    groups = tuple(
        NodeGroup(
            nodes=g.nodes,
            nodes_by_state=dict(sorted(g.by_state.items())),
            gpu=kind,
            gpus_per_node=per_node,
            gpus_free=g.gpus_free,
            cpus_per_node=cpus,
            memory_mib_per_node=memory,
            features=features,
            names=_merged(g.names),
        )
        for (kind, per_node, cpus, memory, features), g in partition.groups.items()
    )
    return Partition(
        name=name,
        default=row["Partition"].endswith("*"),
        state=row["Available"].lower(),
        time_limit_seconds=slurm_words.seconds(row["Time"]),
        default_time_seconds=slurm_words.seconds(row["DefaultTime"]),
        groups=tuple(sorted(groups, key=lambda g: -g.gpus_per_node * g.nodes)),
        max_nodes=_largest(row["Size"]),
    )


def _merged(names: list[str]) -> str:
    joined = ",".join(names)
    # A cut list (`n[1-5,...`) cannot be taken apart and sorted.
    return joined if len(names) < 2 or "..." in joined else hostlist.compress(hostlist.expand(joined))


def _largest(size: str) -> int | None:
    """MaxNodes of `1-infinite`, `1-64`, `64`."""
    last = size.split("-")[-1].strip()
    return int(last) if last.isdigit() else None


def _number(text: str) -> int:
    match = re.match(r"\d+", text)
    return int(match.group()) if match else 0
