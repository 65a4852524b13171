"""Owns the values of a key that are worth trying to make an illegal layout legal, nearest to its own first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.legality_counts import legal_tensor_parallel
from gpt_tune.layouts.rule import divisors
from gpt_tune.layouts.stages import most_layers
from gpt_tune.planner.evaluate import Evaluator
from gpt_tune.planner.types import PlanRequest

# Keys that a change may be looked for in, the likeliest first.
KEYS = (
    *("data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel", "virtual_pipeline"),
    *("expert_parallel", "micro_batch_size", "gradient_accumulation_steps", "zero_stage", "precision"),
    *("sequence_parallel", "flash_attention", "recompute.granularity", "recompute.method"),
    "global_batch_size",
)
_MOST = 12


def nearest_values(request: PlanRequest, layout: Layout, key: str) -> list[Any]:
    """Other values of a key that its own limits allow, nearest first."""
    if key.startswith("trainer."):
        return []
    group, dot, inner = key.partition(".")
    now = getattr(getattr(layout, group), inner) if dot else getattr(layout, group)
    values = _words(request, key)
    if values is not None:
        return [v for v in values if v != now]
    numbers = {n for n in _numbers(request, layout, key) if n != now and n >= 1}
    return sorted(numbers, key=lambda n: (abs(math.log(n / now)) if now else n, n))[:_MOST]


def _words(request: PlanRequest, key: str) -> Sequence[Any] | None:
    """All values of a key that is no count; None for one that is."""
    f = Evaluator(request).setting.features
    return {
        "sequence_parallel": (False, True),
        "flash_attention": (False, True),
        "zero_stage": f.zero_stages,
        "precision": f.precisions,
        "context_method": f.context_methods,
        "recompute.granularity": f.recompute_granularities,
        "recompute.method": f.recompute_methods,
    }.get(key)


def _numbers(request: PlanRequest, x: Layout, key: str) -> Iterable[int]:
    setting = Evaluator(request).setting
    f, gpus, model = setting.features, request.gpus, request.model
    others = x.tensor_parallel * x.pipeline_parallel * x.context_parallel
    if key == "tensor_parallel":
        return legal_tensor_parallel(setting) if f.tensor_parallel else (1,)
    if key == "pipeline_parallel":
        return [d for d in divisors(gpus) if d <= model.layers] if f.pipeline_parallel else (1,)
    if key == "context_parallel":
        return divisors(gpus) if f.context_methods else (1,)
    if key == "virtual_pipeline":
        return range(1, max(1, model.layers // x.pipeline_parallel) + 1) if f.virtual_pipeline else (1,)
    if key == "expert_parallel":
        return divisors(model.experts) if model.moe and f.expert_parallel else (1,)
    if key == "data_parallel":
        return (gpus // others,)
    if key == "recompute.layers":
        return range(1, int(most_layers(model.layers, x.pipeline_parallel)) + 1)
    per_rank = max(1, request.global_batch_size // x.data_parallel)
    if key in ("micro_batch_size", "gradient_accumulation_steps"):
        return divisors(per_rank)
    if key == "global_batch_size":
        step = x.data_parallel * x.micro_batch_size
        return (request.global_batch_size // step * step, -(-request.global_batch_size // step) * step)
    return ()


def splits(request: PlanRequest, x: Layout) -> list[dict[str, Any]]:
    """Sizes of two or three kinds of parallelism at once, nearest first: for splits that no single change mends."""
    names = ("tensor_parallel", "pipeline_parallel", "context_parallel")
    axes = [[getattr(x, name), *nearest_values(request, x, name)] for name in names]
    found = []
    for sizes in product(*axes):
        changed = {name: size for name, size in zip(names, sizes) if size != getattr(x, name)}
        if len(changed) > 1 and request.gpus % math.prod(sizes) == 0:
            far = sum(abs(math.log(size / getattr(x, name))) for name, size in changed.items())
            found.append((len(changed), far, changed))
    return [changed for _, _, changed in sorted(found, key=lambda each: each[:2])[: 4 * _MOST]]
