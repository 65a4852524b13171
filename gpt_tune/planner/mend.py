"""Owns finding the change with which a layout that runs out of memory would fit: one key, else the fewest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gpt_tune.layouts import legality
from gpt_tune.layouts.batch import GRANULARITIES, METHODS, LayoutBatch
from gpt_tune.planner.evaluate import Evaluator
from gpt_tune.planner.judge import Judged

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_NONE, _SELECTIVE, _FULL = (GRANULARITIES.index(g) for g in ("none", "selective", "full"))
# key, its new value for each layout, the changed layouts, and where that is a change at all
_Change = tuple[str, Ints, LayoutBatch, Bools]
# Keys in which a layout that fits may differ; data parallelism and accumulation follow from them.
_KEYS = (
    *("tensor_parallel", "pipeline_parallel", "virtual_pipeline", "context_parallel", "expert_parallel"),
    *("zero_stage", "micro_batch_size", "sequence_parallel", "flash_attention"),
)
_RECOMPUTE = ("recompute_granularity", "recompute_method", "recompute_layers")


def memory_fixes(evaluator: Evaluator, lost: LayoutBatch) -> list[str]:
    """For each layout: KEY=VALUE of the cheapest one change with which it fits, or ""."""
    if len(lost) == 0:
        return []
    changes = list(_changes(lost))
    every = LayoutBatch.join([changed for _, _, changed, _ in changes])
    warned = legality.broken(every, evaluator.setting, legality.WARNINGS)[0] > 0
    works = (evaluator.fits(every) & ~warned).reshape(len(changes), len(lost))
    works &= np.stack([possible for _, _, _, possible in changes])
    fixes = []
    for column in range(len(lost)):
        first = int(np.argmax(works[:, column]))
        key, values, _, _ = changes[first]
        fixes.append(_words(key, int(values[column])) if works[first, column] else "")
    return fixes


def _words(key: str, value: int) -> str:
    if key == "recompute.granularity":
        return f"{key}={GRANULARITIES[value]}"
    if key in ("sequence_parallel", "flash_attention"):
        return f"{key}={'true' if value else 'false'}"
    return f"{key}={value}"


def _changes(b: LayoutBatch) -> Iterator[_Change]:
    """One-key changes that save memory, the cheapest in time first; what follows from the key follows."""
    ones = np.ones(len(b), dtype=np.int64)
    yield "flash_attention", ones, replace(b, flash_attention=ones > 0), ~b.flash_attention
    sharing = ~b.sequence_parallel & (b.tensor_parallel > 1)
    yield "sequence_parallel", ones, replace(b, sequence_parallel=ones > 0), sharing
    for stage in (1, 2, 3):
        higher = (b.zero_stage < stage) & (b.data_parallel * b.context_parallel > 1)
        yield "zero_stage", stage * ones, replace(b, zero_stage=stage * ones), higher
    yield _smaller_micro_batch(b, np.maximum(1, b.micro_batch_size // 2))
    yield _smaller_micro_batch(b, ones)
    yield _recompute(b, _SELECTIVE)
    yield _recompute(b, _FULL)
    halves = b.data_parallel % 2 == 0
    fewer = replace(
        b,
        data_parallel=np.maximum(1, b.data_parallel // 2),
        gradient_accumulation_steps=2 * b.gradient_accumulation_steps,
    )
    stages, tensor = 2 * b.pipeline_parallel, 2 * b.tensor_parallel
    yield "pipeline_parallel", stages, replace(fewer, pipeline_parallel=stages), halves
    yield "tensor_parallel", tensor, replace(fewer, tensor_parallel=tensor), halves


def _smaller_micro_batch(b: LayoutBatch, size: Ints) -> _Change:
    steps = b.gradient_accumulation_steps * (b.micro_batch_size // size)
    changed = replace(b, micro_batch_size=size, gradient_accumulation_steps=steps)
    return "micro_batch_size", size, changed, (size < b.micro_batch_size) & (b.micro_batch_size % size == 0)


def _recompute(b: LayoutBatch, granularity: int) -> _Change:
    column = np.full(len(b), granularity, dtype=np.int64)
    full = granularity == _FULL
    changed = replace(
        b,
        recompute_granularity=column,
        recompute_method=np.full_like(column, METHODS.index("uniform") if full else 0),
        recompute_layers=np.full_like(column, int(full)),
    )
    return "recompute.granularity", column, changed, b.recompute_granularity < granularity


def nearest_fitting(judged: Judged, row: int) -> str:
    """The keys in which the fitting layout nearest to this one differs, the fastest of those as near; "" for none."""
    fitting = judged.fitting
    rows = judged.legal[fitting]
    if len(rows) == 0:
        return ""
    batch = judged.batch
    same_batch = batch.global_batch_size[rows] == batch.global_batch_size[row]
    differs = {key: getattr(batch, key)[rows] != getattr(batch, key)[row] for key in (*_KEYS, *_RECOMPUTE)}
    recompute = np.logical_or.reduce([differs[key] for key in _RECOMPUTE])
    distance = np.sum([differs[key] for key in _KEYS], axis=0) + recompute
    distance = np.where(same_batch, distance, len(_KEYS) + 2)
    best = int(np.lexsort((judged.seconds[fitting], distance))[0])
    if not same_batch[best]:
        return ""
    layout = batch.row(int(rows[best]))
    found = [_words(key, getattr(layout, key)) for key in _KEYS if differs[key][best]]
    if recompute[best]:
        r = layout.recompute
        found.append(f"recompute.granularity={r.granularity}")
        found += [f"recompute.method={r.method}", f"recompute.layers={r.layers}"] if r.method else []
    return f"{found[0]} with {', '.join(found[1:])}" if len(found) > 1 else found[0]
