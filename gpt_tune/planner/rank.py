"""Owns the order of plans: expected time first, and the simpler layout among those within 1 %."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpt_tune.layouts.batch import PRECISIONS, LayoutBatch
from gpt_tune.layouts.layout import Trainer
from gpt_tune.layouts.trainers import accumulation_dtype, features

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
# Predictions are not good enough to tell step times apart that are closer than this.
TIE = 0.01
# Micro batches from which adding up in bf16 counts as a risk, and what risks weigh.
MANY_ACCUMULATIONS = 8
UNSAFE, TIGHT, OVER, SLOW_LINK, GATHERS, ALONE = 0.03, 0.02, 0.10, 0.10, 0.15, 0.05
# Share of the memory from which the allocator has to give cached blocks back.
EDGE = 0.97
# Rows looked at for the best N: alternatives of one layout may fill many of the first places.
_POOL = 1500


def expected_seconds(seconds: Floats, oom_probability: Floats) -> Floats:
    """Step time times the tries it takes: a layout that dies with probability p is started 1/(1-p) times."""
    return seconds / np.maximum(1.0 - oom_probability, 1e-9)


# What the ranking holds against a layout, in the words of a plan's reasons; `cautions` has a factor for each.
CAUTIONS = (
    "adds up many micro batches in bf16, which loses small gradients",
    "fills more than nine tenths of the memory",
    "counts on memory that the allocator must free again in every step",
    "sends tensor-parallel traffic over the network",
    "gathers all weights over the network in every pass (ZeRO-3)",
    "needs DeepSpeed on a single GPU, where it has nothing to split",
)


def cautions(
    batch: LayoutBatch, trainer: Trainer, memory_share: Floats, fast_gpus: int
) -> tuple[Floats, ...]:
    """What a layout has to be faster by, as factors in the order of CAUTIONS, to be worth each of its risks.

    3 % for adding up many micro batches in bf16: a layout as fast that adds up in fp32 is the better choice. 2 % for
    more than nine tenths of the memory, which a longer run, an evaluation or a checkpoint may need. Up to 10 %
    for all of it: it fits when cached memory is given back, but a published run at that edge took twice its time.
    10 % for tensor parallelism over more than the fast_gpus that share a fast link: no measured run does it.
    15 % for DeepSpeed's ZeRO-3 over the network: Narayanan et al. (2104.04473, table 2) found it 6 % slower than
    tensor and pipeline parallelism at 175B and 24 % at 530B, and no measured run here has it. 5 % for fine-tuning
    under DeepSpeed on one GPU: one more package, and checkpoints of its own, for the memory of some tables.
    """
    f = features(trainer)
    many = batch.gradient_accumulation_steps >= MANY_ACCUMULATIONS
    bf16 = batch.precision == PRECISIONS.index("bf16")
    low = np.array([accumulation_dtype(z, "bf16", trainer) == "bf16" for z in range(4)])
    unsafe = many & bf16 & low[np.clip(batch.zero_stage, 0, 3)] & f.deepspeed
    sharing = batch.data_parallel * batch.context_parallel * batch.tensor_parallel > fast_gpus
    gathers = (batch.zero_stage == 3) & sharing & f.deepspeed & (f.finetune is None)
    alone = (batch.zero_stage > 0) & (batch.data_parallel == 1) & (f.finetune is not None)
    marks = (
        (UNSAFE, unsafe),
        (TIGHT, (memory_share > 0.9) & (memory_share <= EDGE)),
        (OVER, np.clip((memory_share - EDGE) / (1.0 - EDGE), 0.0, 1.0)),
        (SLOW_LINK, batch.tensor_parallel > fast_gpus),
        (GATHERS, gathers),
        (ALONE, alone),
    )
    return tuple(np.asarray(1.0 + weight * mark, dtype=np.float64) for weight, mark in marks)


def caution(batch: LayoutBatch, trainer: Trainer, memory_share: Floats, fast_gpus: int) -> Floats:
    """All of `cautions` as one factor."""
    product = np.ones(len(batch))
    for factor in cautions(batch, trainer, memory_share, fast_gpus):
        product = product * factor
    return product


def headroom(score: Floats, device_gib: Floats, within: float) -> Floats:
    """Scores for most memory left: device memory of what is fast enough, the others behind them by time."""
    if len(score) == 0:
        return score
    close = score <= score.min() * (1.0 + within)
    behind = float(device_gib[close].max()) * (1.0 + 2.0 * TIE)
    return np.asarray(np.where(close, device_gib, behind * score / score.min()), dtype=np.float64)


def best(batch: LayoutBatch, score: Floats, count: int) -> list[int]:
    """Indices of the `count` best layouts, best first, one of each family of near-identical ones."""
    if len(batch) == 0:
        return []
    order = np.argsort(score, kind="stable")[: max(_POOL, count)]
    order = order[_first_of_family(batch.take(order), score[order])]
    simple = _simplicity(batch.take(order))
    remaining = list(range(len(order)))
    picked: list[int] = []
    while remaining and len(picked) < count:
        limit = score[order[remaining[0]]] * (1.0 + TIE)
        tied = [r for r in remaining if score[order[r]] <= limit]
        choice = min(tied, key=lambda r: (tuple(simple[r]), score[order[r]]))
        picked.append(int(order[choice]))
        remaining.remove(choice)
    return picked


def each_batch_first(batch: LayoutBatch, score: Floats, order: list[int], count: int) -> list[int]:
    """The best layout of every global batch size, best first, then the rest of `order`."""
    sizes = np.unique(batch.global_batch_size)
    rows = [np.flatnonzero(batch.global_batch_size == size) for size in sizes]
    firsts = [int(r[best(batch.take(r), score[r], 1)[0]]) for r in rows]
    firsts.sort(key=lambda i: float(score[i]))
    return [*firsts, *(i for i in order if i not in firsts)][: max(count, len(firsts))]


def _first_of_family(batch: LayoutBatch, score: Floats) -> Indices:
    """Of layouts equal but for sequence parallelism, flash and chunk size: the simplest within 1 % of the best."""
    family = _numbered(
        batch.tensor_parallel,
        batch.pipeline_parallel,
        batch.virtual_pipeline,
        batch.context_parallel,
        batch.expert_parallel,
        batch.data_parallel,
        batch.zero_stage,
        batch.micro_batch_size,
        batch.recompute_granularity,
        batch.global_batch_size,
    )
    lowest = np.full(family.max() + 1, np.inf)
    np.minimum.at(lowest, family, score)
    close = score <= lowest[family] * (1.0 + TIE)
    plainness = _simplicity(batch)
    candidates = np.flatnonzero(close)
    order = np.lexsort((*plainness[candidates].T[::-1], family[candidates]))
    sorted_rows = candidates[order]
    first = np.unique(family[sorted_rows], return_index=True)[1]
    return np.sort(sorted_rows[first])


def _numbered(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows numbered so that equal rows have equal numbers."""
    number = np.zeros_like(columns[0])
    for column in columns:
        number = number * (int(column.max()) + 1) + column
        number = np.unique(number, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return number


def _simplicity(batch: LayoutBatch) -> NDArray[np.int64]:
    """Columns that compare layouts, simplest smallest: splits, recompute, ZeRO, then switches and chunk size."""
    splits = (
        batch.tensor_parallel
        * batch.pipeline_parallel
        * batch.virtual_pipeline
        * batch.context_parallel
        * batch.expert_parallel
    )
    return np.stack(
        [
            splits,
            batch.recompute_granularity,
            batch.zero_stage,
            batch.tensor_parallel,
            batch.sequence_parallel.astype(np.int64),
            (~batch.flash_attention).astype(np.int64),
            batch.recompute_layers,
            batch.micro_batch_size,
        ],
        axis=1,
    )
