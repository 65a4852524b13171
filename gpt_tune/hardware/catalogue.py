"""Owns the lists of known GPUs and nodes: shipped files, the user's own, and finding one by any of its names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from gpt_tune import toml
from gpt_tune.errors import UserError, unknown_name
from gpt_tune.hardware.parts import Gpu, Node
from gpt_tune.resources import config_dir, data_dir
from gpt_tune.strict import from_dict

Thing = TypeVar("Thing", Gpu, Node)

# Achievable share of the peak for a user's GPU without a measurement: H100 and H200, 794 of 989 TFLOPS.
UNMEASURED_ACHIEVABLE = 0.80
# GB/s one way of PCIe 4 x16, for a user's GPU that states no fast link.
PCIE4_GBS = 31.0


@dataclass(frozen=True, slots=True)
class _GpuFile:
    """A GPU as a TOML file holds it; only what a user cannot leave out has no default."""

    id: str
    name: str
    bf16_tflops: float
    memory_bandwidth_gbs: float
    bf16_achievable_tflops: float | None = None
    fp8_tflops: float | None = None
    memory_gb: float | None = None
    memory_mib_driver: float | None = None
    memory_gib_torch: float | None = None
    nvlink_gbs: float = PCIE4_GBS
    architecture: str = ""
    compute_capability: tuple[int, int] | None = None
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _NodeFile:
    """A node as a TOML file holds it. gpu is a GPU's id."""

    id: str
    name: str
    gpu: str
    gpus_per_node: int
    network_gbs_per_gpu: float
    nvlink_domain_gpus: int | None = None
    nics: int = 1
    network: str = ""
    intra_busbw_gbs: float | None = None
    inter_busbw_gbs: float | None = None
    cpus: int | None = None
    memory_gib: float | None = None
    instance: str = ""
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Catalogue:
    gpus: dict[str, Gpu]
    nodes: dict[str, Node]


def gpus() -> dict[str, Gpu]:
    """Every known GPU by id; the user's own files come last and win."""
    return dict(_catalogue().gpus)


def nodes() -> dict[str, Node]:
    """Every known node type by id."""
    return dict(_catalogue().nodes)


def get_gpu(name: str) -> Gpu:
    """A GPU by id or alias. UserError with the nearest name."""
    known = _catalogue().gpus
    found = _by_name(name, known)
    if found is None:
        raise unknown_name("GPU", name, _all_names(known))
    return found


def get_node(name: str) -> Node:
    """A node type by id, alias or cloud instance name. UserError with the nearest name."""
    known = _catalogue().nodes
    found = _by_name(name, known)
    if found is None:
        raise unknown_name("node type", name, _all_names(known))
    return found


def node_for(gpu: str, gpus_per_node: int | None = None) -> Node:
    """The node to plan with, from a GPU's or a node's name.

    A node's name gives that node. A GPU's name gives its usual node (the vendor's own where there is one),
    or a generic one when the number of GPUs asked for is none of theirs.
    """
    catalogue = _catalogue()
    node = _by_name(gpu, catalogue.nodes)
    if node is None:
        node = _usual_node(_gpu_or_error(gpu, catalogue), catalogue.nodes)
    if gpus_per_node is None or gpus_per_node == node.gpus_per_node:
        return node
    if gpus_per_node < 1:
        raise UserError(
            f"A node needs at least 1 GPU, not {gpus_per_node}.", "Give --gpus-per-node 1 or more."
        )
    return _resized(node, gpus_per_node)


def guess_gpu(scheduler_type: str) -> str | None:
    """The catalogue id for a scheduler's GPU type word ("nvidia_b200", "H100-80GB"), or None.

    MIG slices ("a100_1g.5gb", "3g.40gb") are no whole GPU and give None.
    """
    word = _plain(scheduler_type)
    if not word or re.search(r"\d+g\.\d+gb", scheduler_type.lower()):
        return None
    table = {_plain(n): g.id for g in _catalogue().gpus.values() for n in (g.id, *g.aliases)}
    if word in table:
        return table[word]
    inside = [n for n in table if n in word and _whole_word(n, word)]
    return table[max(inside, key=len)] if inside else None


def _plain(word: str) -> str:
    """A name without vendor words and separators: "NVIDIA H100-80GB HBM3" -> "h10080gbhbm3"."""
    text = re.sub(
        r"\b(nvidia|amd|tesla|instinct|gpu|gres)\b", " ", word.lower().replace("_", " ").replace(":", " ")
    )
    return re.sub(r"[^a-z0-9.]", "", text)


def _whole_word(name: str, word: str) -> bool:
    """Whether `name` stands in `word` without cutting a number or a word: "h20" is not in "h200"."""
    start = word.find(name)
    before, after = word[:start], word[start + len(name) :]
    cut_before = before[-1:].isalnum() and before[-1:].isalpha() == name[0].isalpha()
    return not cut_before and not (name[-1].isdigit() and after[:1].isdigit() and not after.endswith("gb"))


def _by_name(name: str, known: Mapping[str, Thing]) -> Thing | None:
    wanted = name.strip().lower()
    if wanted in known:
        return known[wanted]
    for thing in known.values():
        if wanted in (a.lower() for a in thing.aliases):
            return thing
    return None


def _all_names(known: Mapping[str, Gpu] | Mapping[str, Node]) -> list[str]:
    return [n for thing in known.values() for n in (thing.id, *thing.aliases)]


def _gpu_or_error(name: str, catalogue: _Catalogue) -> Gpu:
    found = _by_name(name, catalogue.gpus) or catalogue.gpus.get(guess_gpu(name) or "")
    if found is None:
        raise unknown_name("GPU or node type", name, _all_names(catalogue.gpus) + _all_names(catalogue.nodes))
    return found


# The vendor's own platform speaks for a GPU better than one cloud's instance.
_USUAL_PREFIXES = ("dgx-", "gb", "mi", "p", "g")


def _usual_node(gpu: Gpu, known: Mapping[str, Node]) -> Node:
    mine = [n for n in known.values() if n.gpu.id == gpu.id]
    for prefix in _USUAL_PREFIXES:
        for node in mine:
            if node.id.startswith(prefix):
                return replace(node, gpu=gpu)
    return _generic(gpu)


def _generic(gpu: Gpu) -> Node:
    """8 GPUs and one 400 Gb/s NIC each: what most GPU servers without an entry of their own look like."""
    return Node(
        id=f"generic-{gpu.id}",
        name=f"8 x {gpu.name}",
        gpu=gpu,
        gpus_per_node=8,
        nvlink_domain_gpus=8,
        nics=8,
        network_gbs_per_gpu=50.0,
        network="assumed: 400 Gb/s a GPU",
        notes=("No entry for this node type: its network is assumed. Add a file of your own to correct it.",),
    )


def _resized(node: Node, gpus_per_node: int) -> Node:
    """The same parts with another number of GPUs; the NICs' rate per GPU is kept, measurements are not."""
    domain = node.nvlink_domain_gpus if node.nvlink_domain_gpus > node.gpus_per_node else gpus_per_node
    return replace(
        node,
        id=f"{node.id}-x{gpus_per_node}",
        name=f"{gpus_per_node} x {node.gpu.name} (parts of {node.name})",
        gpus_per_node=gpus_per_node,
        nvlink_domain_gpus=max(domain, gpus_per_node),
        nics=max(1, round(node.nics * gpus_per_node / node.gpus_per_node)),
        intra_busbw_gbs=node.intra_busbw_gbs if gpus_per_node > 1 else None,
        instance="",
        aliases=(),
    )


def _catalogue() -> _Catalogue:
    return _load(str(data_dir("profiles") / "hardware"), str(config_dir() / "hardware"))


@lru_cache(maxsize=8)
def _load(shipped: str, own: str) -> _Catalogue:
    """Read once a process for each pair of folders."""
    gpu_files: dict[str, tuple[_GpuFile, str]] = {}
    node_files: dict[str, tuple[_NodeFile, str]] = {}
    for path in [*_toml_files(Path(shipped)), *_toml_files(Path(own))]:
        data = toml.load(path)
        if "gpu" in data:
            node_file = from_dict(_NodeFile, data, str(path))
            node_files[node_file.id] = (node_file, str(path))
        else:
            gpu_file = from_dict(_GpuFile, data, str(path))
            gpu_files[gpu_file.id] = (gpu_file, str(path))
    known = {name: _gpu(entry, where) for name, (entry, where) in gpu_files.items()}
    return _Catalogue(known, {n: _node(entry, where, known) for n, (entry, where) in node_files.items()})


def _toml_files(folder: Path) -> list[Path]:
    return (
        sorted(folder.glob("*.toml"))
        + sorted(folder.glob("gpus/*.toml"))
        + sorted(folder.glob("nodes/*.toml"))
    )


def _gpu(entry: _GpuFile, where: str) -> Gpu:
    _positive(entry, where)
    values = _plain_values(entry)
    if entry.bf16_achievable_tflops is None:
        values["bf16_achievable_tflops"] = UNMEASURED_ACHIEVABLE * entry.bf16_tflops
    return Gpu(**values)


def _node(entry: _NodeFile, where: str, known: Mapping[str, Gpu]) -> Node:
    _positive(entry, where)
    gpu = _by_name(entry.gpu, known)
    if gpu is None:
        raise unknown_name("GPU", entry.gpu, _all_names(known), where)
    values = _plain_values(entry)
    values["gpu"] = gpu
    values["nvlink_domain_gpus"] = entry.nvlink_domain_gpus or entry.gpus_per_node
    return Node(**values)


def _plain_values(entry: _GpuFile | _NodeFile) -> dict[str, Any]:
    values = {f.name: getattr(entry, f.name) for f in fields(entry)}
    values["sources"] = tuple(f"{figure}: {source}" for figure, source in entry.sources.items())
    return values


def _positive(entry: _GpuFile | _NodeFile, where: str) -> None:
    for f in fields(entry):
        value = getattr(entry, f.name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value <= 0:
            raise UserError(
                f"{f.name} in {where} must be above 0, not {value}.", "Leave it out when unknown."
            )
    unsourced = [name for name in entry.sources if name not in {f.name for f in fields(entry)}]
    if unsourced:
        raise unknown_name("figure", unsourced[0], [f.name for f in fields(entry)], f"[sources] of {where}")
