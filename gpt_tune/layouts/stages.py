"""Owns how layers are dealt out to pipeline stages.

Works on NumPy arrays as on single numbers, so that the search and a single estimate share it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpt_tune.layouts.layout import Trainer
from gpt_tune.layouts.versions import deepspeed_at_least

Ints = NDArray[np.int64]

# balanced: sizes differ by at most one, the larger ones first (DeepSpeed since 0.12.5, and torch pipelining).
# greedy: ceil(layers / stages) until they run out (DeepSpeed before; 78 layers on 12 stages end 7, 7, .., 1).
# even: equal sizes (Megatron-LM); where only layers + 2 divides, embedding and output count as a layer each
# (--account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split).
# embedding: BigScience's partition `type:transformer|embedding` over the greedy one, ends counted likewise.
Split = Literal["balanced", "greedy", "even", "embedding"]
_ENDS_COUNT = ("even", "embedding")


def split_of(trainer: Trainer) -> Split:
    """How this trainer deals out layers (DeepSpeed's `type:transformer` partition for Megatron-DeepSpeed)."""
    if trainer.name == "megatron-lm":
        return "even"
    if trainer.version == "bigscience":
        return "embedding"
    # The version is that of DeepSpeed's commit 2bdf061f4 (#4312), released in 0.12.5.
    if trainer.name == "megatron-deepspeed" and not deepspeed_at_least(trainer, 0, 12, 5):
        return "greedy"
    return "balanced"


def layers_of_stage(
    layers: int, pipeline_parallel: ArrayLike, stage: ArrayLike, split: Split = "balanced"
) -> Ints:
    """How many transformer layers stage number `stage` (from 0) holds. Broadcasts."""
    p, i = np.asarray(pipeline_parallel, np.int64), np.asarray(stage, np.int64)
    n = _greedy(layers, p, i) if split in ("greedy", "embedding") else _balanced(layers, p, i)
    if split not in _ENDS_COUNT:
        return n
    ends = (i == 0).astype(np.int64) + (i == p - 1)
    return np.where(_counts_ends(layers, p), (layers + 2) // p - ends, n)


def _greedy(layers: int, p: Ints, i: Ints) -> Ints:
    most = -(-layers // p)
    return np.asarray(np.clip(layers - i * most, 0, most), np.int64)


def _balanced(layers: int, p: Ints, i: Ints) -> Ints:
    return np.asarray(layers // p + (i < layers % p), np.int64)


def first_layer_of_stage(
    layers: int, pipeline_parallel: ArrayLike, stage: ArrayLike, split: Split = "balanced"
) -> Ints:
    """The number (from 0) of the first layer of a stage. Broadcasts."""
    p, i = np.asarray(pipeline_parallel, np.int64), np.asarray(stage, np.int64)
    if split in ("greedy", "embedding"):
        start = np.minimum(i * -(-layers // p), layers)
    else:
        start = i * (layers // p) + np.minimum(i, layers % p)
    if split in _ENDS_COUNT:
        start = np.where(_counts_ends(layers, p), i * ((layers + 2) // p) - (i > 0), start)
    return np.asarray(start, np.int64)


def _counts_ends(layers: int, p: Ints) -> NDArray[np.bool_]:
    """Where Megatron-LM has to count embedding and output as layers to come out even."""
    return np.asarray((layers % p != 0) & ((layers + 2) % p == 0) & (layers + 2 >= 2 * p))


def divides_evenly(
    layers: int, pipeline_parallel: ArrayLike, virtual_pipeline: ArrayLike = 1
) -> NDArray[np.bool_]:
    """Whether Megatron-LM can deal the layers out, with or without counting embedding and output."""
    p = np.asarray(pipeline_parallel, np.int64)
    chunks = p * np.asarray(virtual_pipeline, np.int64)
    plain = layers % chunks == 0
    return np.asarray(plain | (_counts_ends(layers, p) & ((layers + 2) % chunks == 0)))


def most_layers(layers: int, pipeline_parallel: ArrayLike) -> Ints:
    """Layers of the fullest stage: the same under every split."""
    p = np.asarray(pipeline_parallel, np.int64)
    return np.asarray(-(-layers // p), np.int64)


def sizes(layers: int, pipeline_parallel: int, split: Split = "balanced") -> tuple[int, ...]:
    """Layers of every stage of one pipeline."""
    stages = np.arange(pipeline_parallel)
    return tuple(int(n) for n in layers_of_stage(layers, pipeline_parallel, stages, split))
