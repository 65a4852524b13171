"""Owns the JSON of `plan` and `estimate` (the shapes of the contract)."""

from __future__ import annotations

from typing import Any

from gpt_tune import calibration
from gpt_tune.jsonable import as_json
from gpt_tune.models import parameters
from gpt_tune.planner.request import normalised
from gpt_tune.planner.sure import sure_json
from gpt_tune.planner.types import EstimateResult, PlanRequest, SearchResult


def plan_json(request: PlanRequest, result: SearchResult) -> dict[str, Any]:
    """The object `gpt-tune plan --json` prints."""
    best = result.plans[0].layout.tensor_parallel if result.plans else 1
    return {
        "schema": "gpt-tune/plan/1",
        "model": model_json(request, best),
        "gpus": result.gpus or request.gpus,
        "objective": {
            "name": request.objective,
            "target_seconds": request.target_seconds,
            "within": request.within if request.objective == "headroom" else None,
            "gpus_available": request.gpus,
            "tried": [as_json(tried) for tried in result.tried],
        },
        "gpu": request.node.gpu.id,
        "node": request.node.id,
        "global_batch_size": _batch_size(request, result),
        "global_batch_sizes": list(request.global_batch_sizes),
        "searched": result.searched,
        "seconds": result.seconds,
        "plans": [plan.to_json() for plan in result.plans],
        "rejected": [miss.to_json() for miss in result.rejected],
        "rejected_count": result.rejected_count,
        "calibration": sure_json(calibration.load(request.node, request.cluster), request),
    }


def _batch_size(request: PlanRequest, result: SearchResult) -> int:
    """The best plan's, or the one asked for."""
    if request.global_batch_sizes and result.plans:
        return result.plans[0].layout.global_batch_size
    return normalised(request).global_batch_size


def estimate_json(request: PlanRequest, result: EstimateResult) -> dict[str, Any]:
    """The object `gpt-tune estimate --json` prints."""
    tensor = result.plan.layout.tensor_parallel if result.plan else 1
    return {
        "schema": "gpt-tune/estimate/1",
        "model": model_json(request, tensor),
        "legal": result.legal,
        "problems": [as_json(problem) for problem in result.problems],
        "plan": result.plan.to_json() if result.plan else None,
        "calibration": sure_json(calibration.load(request.node, request.cluster), request),
    }


def model_json(request: PlanRequest, tensor_parallel: int) -> dict[str, Any]:
    """The model as planned: padded_vocab is the one of the given tensor parallel size."""
    model = request.model
    return {
        "id": model.id,
        "parameters": parameters.total(model),
        "active_parameters": parameters.active(model),
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "ffn": model.ffn,
        "vocab": model.vocab,
        "padded_vocab": parameters.padded_vocab(model, tensor_parallel),
        "seq_length": request.seq_length,
        "notes": list(model.notes),
    }
