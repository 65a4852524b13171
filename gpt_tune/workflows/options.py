"""Owns what can be chosen in a question: each value with its label and a few words on it."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, Union, get_args, get_origin

from gpt_tune import recipes
from gpt_tune.errors import UserError
from gpt_tune.hardware import catalogue
from gpt_tune.models import catalogue as models
from gpt_tune.models import parameters
from gpt_tune.profiles import settings
from gpt_tune.profiles.schema import Profile, Site
from gpt_tune.recipes import acs_rules
from gpt_tune.schedulers.base import Partition
from gpt_tune.words import count_words, seconds_words
from gpt_tune.workflows.defaults import machine
from gpt_tune.workflows.draft import PLAN_ONLY, Draft, Option


def options_of(draft: Draft, key: str) -> tuple[Option, ...]:
    """The choices of a question; empty where anything may be typed."""
    if key in _BY_KEY:
        return _BY_KEY[key](draft)
    return _literals(key)


@lru_cache(maxsize=128)
def _literals(key: str) -> tuple[Option, ...]:
    """The allowed words of a field whose type lists them."""
    site = key.startswith("site.")
    hint = settings.type_of(Site if site else Profile, key[5:] if site else key)
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(a for a in get_args(hint) if a is not type(None))
    if get_origin(hint) is not Literal:
        return ()
    return tuple(Option(str(a), str(a) or "automatic") for a in get_args(hint))


def _clusters(draft: Draft) -> tuple[Option, ...]:
    known = [Option(n, n, "this machine" if n == "local" else "Slurm") for n in draft.clusters]
    return (*known, Option(PLAN_ONLY, "plan only", "for a cluster that is not here; submits nothing"))


def _partitions(draft: Draft) -> tuple[Option, ...]:
    if draft.cluster is None:
        return ()
    return tuple(Option(p.name, p.name, partition_words(p)) for p in draft.cluster.partitions)


def partition_words(partition: Partition) -> str:
    """A partition in one line: 5 of 8 nodes free, 40 of 64 b200, limit 1 d."""
    nodes = sum(g.nodes for g in partition.groups)
    idle = sum(g.nodes_by_state.get("idle", 0) for g in partition.groups)
    words = [f"{idle} of {nodes} nodes free"]
    kinds = sorted({g.gpu or "GPUs" for g in partition.groups if g.gpus_per_node})
    if partition.gpus_total:
        words.append(f"{partition.gpus_free} of {partition.gpus_total} {'/'.join(kinds)} free")
    else:
        words.append("no GPUs")
    if partition.time_limit_seconds is not None:
        words.append(f"at most {seconds_words(partition.time_limit_seconds)}")
    return ", ".join(words)


def _gpu_types(draft: Draft) -> tuple[Option, ...]:
    named = [
        Option(n.id, n.id, f"{n.gpus_per_node} x {n.gpu.id}, {n.network}") for n in catalogue.nodes().values()
    ]
    cards = [Option(g.id, g.id, f"{g.name}, {g.bf16_tflops:g} TFLOPS") for g in catalogue.gpus().values()]
    return (*named, *cards)


def _gpus(draft: Draft) -> tuple[Option, ...]:
    """Whole nodes: 1, 2, 4 ... up to what the partition has; parts of one node stay typable."""
    found = machine(draft)
    if found is None:
        return ()
    per_node = found.node_gpus
    total = sum(g.nodes for g in found.partition.groups) if found.partition else 0
    most = total or 128
    counts = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if n <= most]
    if total and total not in counts:
        counts.append(total)
    return tuple(
        Option(str(n * per_node), f"{n * per_node}", f"{n} node{'s' if n > 1 else ''}") for n in counts
    )


@lru_cache(maxsize=1)
def _model_options() -> tuple[Option, ...]:
    return tuple(
        Option(
            m.id,
            m.id,
            f"{count_words(parameters.total(m))} parameters, {m.layers} x {m.hidden}{_also(m.aliases)}",
        )
        for m in models.all_models()
    )


def _also(aliases: tuple[str, ...]) -> str:
    """Other names, so that a search for one of them finds the model."""
    return f"; also {', '.join(aliases[:3])}" if aliases else ""


def notes_of(key: str, value: str) -> tuple[str, ...]:
    """Sentences that somebody who picks this should read first: a model sold under another size, say."""
    if key != "model.id":
        return ()
    try:
        return models.get(value).notes
    except UserError:
        return ()


def _recipes(draft: Draft) -> tuple[Option, ...]:
    return tuple(Option(n, n, recipes.get(n).title) for n in recipes.names())


_NETWORKS = (
    Option("", "as it is", "no variables are set"),
    Option("efa", "EFA", "AWS Elastic Fabric Adapter"),
    Option("infiniband", "InfiniBand", "also Omni-Path and RoCE defaults of NCCL"),
    Option("none", "none", "sockets only"),
)


def _nodes(draft: Draft) -> tuple[Option, ...]:
    known = (Option(n.id, n.id, n.name) for n in catalogue.nodes().values())
    return (Option("", "by GPU type", "the usual node of the partition's GPUs"), *known)


def _acs_releases(draft: Draft) -> tuple[Option, ...]:
    known = reversed(acs_rules.releases().items())
    return tuple(Option(n, n, f"CUDA {' or '.join(r['cuda'])}") for n, r in known)


_CHECKPOINTING = (
    Option("", "automatic", "the planner's choice; on without a plan"),
    Option("true", "on", "less memory, about a third more time"),
    Option("false", "off", "every activation is kept"),
)

_BY_KEY: dict[str, Callable[[Draft], tuple[Option, ...]]] = {
    "cluster": _clusters,
    "recipe": _recipes,
    "resources.partition": _partitions,
    "site.partition": _partitions,
    "resources.gpu": _gpu_types,
    "resources.gpus": _gpus,
    "site.node": _nodes,
    "site.network_profile": lambda draft: _NETWORKS,
    "model.id": lambda draft: _model_options(),
    "acs.release": _acs_releases,
    "finetune.gradient_checkpointing": lambda draft: _CHECKPOINTING,
}
