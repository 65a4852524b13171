"""Owns making one whole layout from a few fixed keys: everything else follows or takes the smallest value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpt_tune.layouts import choices
from gpt_tune.layouts.layout import Layout, Recompute
from gpt_tune.layouts.legality_precision import flash_works
from gpt_tune.layouts.trainers import features
from gpt_tune.planner.types import PlanRequest


def default_layout(request: PlanRequest) -> Layout:
    """The layout that `fixed` describes: no splitting beyond it, data parallelism over the remaining GPUs.

    Micro batch 1, the lowest ZeRO the trainer has, no recompute, flash attention where it works.
    """
    f = features(request.trainer)
    fixed = dict(request.fixed)
    fixed.setdefault("precision", request.precision)
    fixed.setdefault("global_batch_size", request.global_batch_size)
    fixed.setdefault("zero_stage", min(f.zero_stages))
    if fixed.get("context_parallel", 1) > 1 and f.context_methods:
        fixed.setdefault("context_method", f.context_methods[0])
    flash = flash_works(request.model, str(fixed["precision"]), request.node)
    fixed.setdefault("flash_attention", flash)
    if "recompute.granularity" not in fixed and (
        fixed.get("recompute.method") or fixed.get("recompute.layers")
    ):
        fixed["recompute.granularity"] = "full"
    return derived(choices.apply(Layout(), fixed), request, fixed)


def derived(layout: Layout, request: PlanRequest, fixed: dict[str, Any] | None = None) -> Layout:
    """The layout with data parallelism, accumulation and recompute details that follow from the rest.

    Keys in `fixed` keep their value even when they do not fit; legality then says so.
    """
    kept = fixed or {}
    changes: dict[str, Any] = {}
    split = layout.tensor_parallel * layout.pipeline_parallel * layout.context_parallel
    data = layout.data_parallel if "data_parallel" in kept else max(1, request.gpus // split)
    changes["data_parallel"] = data
    whole = request.global_batch_size
    if "gradient_accumulation_steps" not in kept:
        changes["gradient_accumulation_steps"] = max(1, whole // (data * layout.micro_batch_size))
    elif "micro_batch_size" not in kept:
        changes["micro_batch_size"] = max(1, whole // (data * layout.gradient_accumulation_steps))
    changes["global_batch_size"] = whole
    changes["recompute"] = _whole_recompute(layout.recompute, kept)
    if layout.context_parallel == 1:
        changes["context_method"] = None
    elif layout.context_method is None:
        methods = features(request.trainer).context_methods
        changes["context_method"] = methods[0] if methods else None
    return replace(layout, **changes)


def _whole_recompute(recompute: Recompute, kept: dict[str, Any]) -> Recompute:
    """Full recompute with method and layers; the others without, unless the user fixed them."""
    if recompute.granularity == "full":
        return Recompute("full", recompute.method or "uniform", recompute.layers or 1)
    return Recompute(
        recompute.granularity,
        recompute.method if "recompute.method" in kept else None,
        recompute.layers if "recompute.layers" in kept else None,
    )
