"""Owns the candidates of a search: every layout of the trainer's space, legal or nearly so, as columns.

Left out because they can never win (a fixed key brings each back): sequence parallelism at tensor parallel 1,
attention without flash where flash works, selective recompute with flash, recompute chunks that are no power
of two, slices under 128 tokens, and of a hundred micro batch sizes those above 16 that are no power of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_tune.layouts import choices
from gpt_tune.layouts.batch import CONTEXT_METHODS, GRANULARITIES, METHODS, PRECISIONS, LayoutBatch
from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.legality import Setting
from gpt_tune.layouts.legality_counts import legal_tensor_parallel
from gpt_tune.layouts.legality_precision import flash_works
from gpt_tune.layouts.rule import divisors
from gpt_tune.layouts.stages import divides_evenly, most_layers
from gpt_tune.planner.types import PlanRequest

Ints = NDArray[np.int64]
# Layers in one checkpointed chunk of method uniform.
CHUNKS = (1, 2, 4, 8)
# A rank with fewer tokens than this spends its time waiting.
_FEWEST_TOKENS = 128
_MANY = 16
_LARGEST_MICRO_BATCH = 4096
_FULL, _SELECTIVE = GRANULARITIES.index("full"), GRANULARITIES.index("selective")


def candidates(request: PlanRequest, setting: Setting) -> LayoutBatch:
    """All candidates that respect the fixed keys. Method block is left to `search`, which finds its layers."""
    fixed = request.fixed
    shapes = np.array(list(_shapes(request, setting)), dtype=np.int64).reshape(-1, 7)
    extras = np.array(list(_extras(request, setting)), dtype=np.int64).reshape(-1, 6)
    n, k = len(shapes), len(extras)
    left = np.repeat(shapes, k, axis=0)
    right = np.tile(extras, (n, 1))
    keep = np.ones(len(left), dtype=np.bool_)
    if "recompute.layers" not in fixed:
        # A chunk cannot be larger than what a stage runs in one go.
        keep &= right[:, 3] <= np.maximum(1, most_layers(request.model.layers, left[:, 1]) // left[:, 2])
    if "sequence_parallel" not in fixed:
        keep &= (right[:, 4] == 0) | (left[:, 0] > 1)
    return _batch(request, setting, left[keep], right[keep])


def _shapes(request: PlanRequest, setting: Setting) -> Iterator[tuple[int, ...]]:
    """(tp, pp, vpp, cp, ep, dp, micro batch): the columns that depend on each other."""
    fixed, gpus = request.fixed, request.gpus
    for tp in _axis(fixed, "tensor_parallel", _tensor_sizes(request, setting)):
        for pp in _axis(fixed, "pipeline_parallel", _stages(request, setting, max(1, gpus // tp))):
            for cp in _axis(fixed, "context_parallel", _contexts(request, setting, tp, pp)):
                dp = fixed.get("data_parallel") or gpus // (tp * pp * cp)
                if dp < 1 or (tp * pp * cp * dp != gpus and "data_parallel" not in fixed):
                    continue
                for vpp, ep, size in product(
                    _axis(fixed, "virtual_pipeline", _chunks(request, setting, pp)),
                    _axis(fixed, "expert_parallel", _experts(request, setting, dp * cp)),
                    _axis(fixed, "micro_batch_size", _micro_batches(request, dp)),
                ):
                    yield tp, pp, vpp, cp, ep, dp, size


def _tensor_sizes(request: PlanRequest, setting: Setting) -> list[int]:
    """The legal ones, and powers of two as near misses."""
    if not setting.features.tensor_parallel:
        return [1]
    legal = legal_tensor_parallel(setting)
    largest = min(request.model.heads, 2 * request.node.nvlink_domain_gpus)
    return sorted({*legal, *(d for d in divisors(request.gpus) if _is_power(d) and d <= largest)})


def _stages(request: PlanRequest, setting: Setting, ranks: int) -> list[int]:
    """Every number of stages that has layers; where stages must be even, those and powers of two as near misses."""
    if not setting.features.pipeline_parallel:
        return [1]
    layers = request.model.layers
    fitting = [d for d in divisors(ranks) if d <= layers]
    if not setting.features.even_stages:
        return fitting
    return [d for d in fitting if _is_power(d) or divides_evenly(layers, d)]


def _contexts(request: PlanRequest, setting: Setting, tp: int, pp: int) -> list[int]:
    ranks, seq = max(1, request.gpus // (tp * pp)), request.seq_length
    method = context_method(request, setting)
    # Megatron-DeepSpeed's Ulysses excludes tensor and pipeline parallelism.
    if method is None or (setting.is_megatron_deepspeed and tp * pp > 1):
        return [1]
    slices = 2 if method == "ring" else 1
    return [d for d in divisors(ranks) if d == 1 or (seq % (slices * d) == 0 and seq // d >= _FEWEST_TOKENS)]


def _chunks(request: PlanRequest, setting: Setting, pp: int) -> list[int]:
    layers = request.model.layers
    if not setting.features.virtual_pipeline or pp == 1 or not divides_evenly(layers, pp):
        return [1]
    return [v for v in range(1, layers // pp + 1) if divides_evenly(layers, pp, v)]


def _experts(request: PlanRequest, setting: Setting, ranks: int) -> list[int]:
    if not request.model.moe or not setting.features.expert_parallel:
        return [1]
    return [d for d in divisors(request.model.experts) if ranks % d == 0]


def _micro_batches(request: PlanRequest, dp: int) -> list[int]:
    """Divisors of a rank's share of the batch; of many, the small ones and powers of two."""
    if request.global_batch_size % dp:
        return [1]
    per_rank = request.global_batch_size // dp
    steps = request.fixed.get("gradient_accumulation_steps")
    if steps is not None and per_rank % steps == 0:
        return [per_rank // steps]
    every = divisors(per_rank)
    if len(every) <= _MANY:
        return every
    return [d for d in every if d <= _MANY or (_is_power(d) and d <= _LARGEST_MICRO_BATCH)]


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


def _extras(request: PlanRequest, setting: Setting) -> Iterator[tuple[int, ...]]:
    """(zero, granularity, method, layers, sequence parallel, flash): the columns free of the others."""
    fixed, f = request.fixed, setting.features
    zeros = _axis(fixed, "zero_stage", list(f.zero_stages))
    sequence = _axis(fixed, "sequence_parallel", [False, True] if f.tensor_parallel else [False])
    flash = fixed.get("flash_attention", flash_works(request.model, request.precision, request.node))
    for zero, (grain, method, layers), sp in product(zeros, recomputes(request, setting), sequence):
        if grain == _SELECTIVE and flash and "recompute.granularity" not in fixed:
            continue
        yield zero, grain, method, layers, int(sp), int(flash)


def recomputes(request: PlanRequest, setting: Setting) -> list[tuple[int, int, int]]:
    """(granularity, method, layers) combinations the fixed keys and the trainer leave, method block apart."""
    fixed, f = request.fixed, setting.features
    grain = fixed.get("recompute.granularity")
    method, layers = fixed.get("recompute.method"), fixed.get("recompute.layers")
    if grain is None and (method or layers):
        grain = "full"
    grains = [grain] if grain else list(f.recompute_granularities)
    found: list[tuple[int, int, int]] = []
    for g in grains:
        if g != "full":
            stray = METHODS.index(method) if method else 0
            found.append((GRANULARITIES.index(g), stray, layers or 0))
        elif method != "block" or layers:
            # Larger chunks keep fewer inputs, which some layouts need beside method block, too.
            # Hugging Face's checkpointing knows single layers only.
            chunks = CHUNKS[:1] if f.finetune is not None else CHUNKS
            sizes = [layers] if layers else list(chunks)
            found += [(_FULL, METHODS.index(method or "uniform"), n) for n in sizes]
    return found


def wants_block(request: PlanRequest, setting: Setting) -> bool:
    """Whether the number of recomputed layers per stage (method block) is left to the search."""
    fixed = request.fixed
    return (
        "block" in setting.features.recompute_methods
        and not setting.is_megatron_deepspeed
        and fixed.get("recompute.granularity", "full") == "full"
        and fixed.get("recompute.method", "block") == "block"
        and not fixed.get("recompute.layers")
    )


def _axis(fixed: Mapping[str, Any], key: str, values: list[Any]) -> list[Any]:
    return [fixed[key]] if key in fixed else values


def _batch(request: PlanRequest, setting: Setting, left: Ints, right: Ints) -> LayoutBatch:
    fixed = request.fixed
    tp, pp, vpp, cp, ep, dp, mbs = (np.ascontiguousarray(left[:, i]) for i in range(7))
    zero, grain, method, layers, sp, flash = (np.ascontiguousarray(right[:, i]) for i in range(6))
    whole = np.full(len(tp), request.global_batch_size, dtype=np.int64)
    steps = fixed.get("gradient_accumulation_steps")
    accumulation = np.maximum(1, whole // (mbs * dp)) if steps is None else np.full_like(whole, steps)
    return LayoutBatch(
        tensor_parallel=tp,
        pipeline_parallel=pp,
        virtual_pipeline=vpp,
        context_parallel=cp,
        context_method=np.where(cp > 1, CONTEXT_METHODS.index(context_method(request, setting)), 0),
        expert_parallel=ep,
        data_parallel=dp,
        sequence_parallel=sp.astype(np.bool_),
        zero_stage=zero,
        micro_batch_size=mbs,
        gradient_accumulation_steps=accumulation,
        global_batch_size=whole,
        recompute_granularity=grain,
        recompute_method=method,
        recompute_layers=layers,
        precision=np.full_like(whole, PRECISIONS.index(request.precision)),
        flash_attention=flash.astype(np.bool_),
        fusions=choices.apply(Layout(), _fusions(fixed)).fusions,
    )


def context_method(request: PlanRequest, setting: Setting) -> str | None:
    """How context parallelism splits attention: as fixed, or the trainer's first method."""
    if request.fixed.get("context_method"):
        return str(request.fixed["context_method"])
    methods = setting.features.context_methods
    return methods[0] if methods else None


def _fusions(fixed: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fixed.items() if key.startswith("fusions.")}
