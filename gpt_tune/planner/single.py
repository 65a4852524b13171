"""Owns estimating one given layout, legal or not, and "what if" on one of its keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpt_tune.errors import UserError
from gpt_tune.layouts import choices, legality
from gpt_tune.layouts.choices import CHOICES
from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.rule import divisors
from gpt_tune.layouts.trainers import features
from gpt_tune.planner.build import default_layout, derived
from gpt_tune.planner.cure import cures
from gpt_tune.planner.evaluate import Evaluator
from gpt_tune.planner.explain import plans_of
from gpt_tune.planner.request import normalised
from gpt_tune.planner.types import EstimateResult, Plan, PlanRequest, Problem

# Keys that follow from the others and so are not changed by "what if".
_FOLLOWING = ("data_parallel", "gradient_accumulation_steps", "global_batch_size")


def estimate(request: PlanRequest, layout: Layout | None = None) -> EstimateResult:
    """One layout judged and estimated, even when it is illegal. None: the one the fixed keys describe."""
    if layout is None and len(request.global_batch_sizes) > 1:
        sizes = ", ".join(map(str, request.global_batch_sizes))
        raise UserError(f"An estimate takes one global batch size, not {sizes}.", "Give one, or use `plan`.")
    evaluator = Evaluator(normalised(request))
    if layout is None:
        layout = default_layout(evaluator.request)
    found = legality.problems(layout, evaluator.setting)
    fixes = cures(evaluator.request, [layout] * len(found), found)
    # Without layers for each stage, or with a model the method cannot hold, there is nothing to estimate.
    computable = not {"stages-layers", "experts-qlora"} & {v.rule for v in found}
    return EstimateResult(
        legal=not found,
        problems=tuple(Problem(v.rule, v.text, cure.words) for v, cure in zip(found, fixes)),
        plan=plans_of(evaluator, [layout])[0] if computable else None,
    )


def what_if(request: PlanRequest, plan: Plan, key: str, direction: int) -> EstimateResult:
    """The plan with one key a step up (direction 1) or down (-1); what follows from it follows."""
    name = choices.known_key(key)
    if name in _FOLLOWING or name.startswith("trainer."):
        raise UserError(f"{name} follows from the other keys.", "Change the one it follows from.")
    request = normalised(request)
    values = _values(request, plan.layout, name)
    now = _value(plan.layout, name)
    changed = choices.apply(plan.layout, {name: _next(values, now, direction)})
    return estimate(replace(request, precision=changed.precision, fixed={}), derived(changed, request))


def _value(layout: Layout, name: str) -> Any:
    group, dot, inner = name.partition(".")
    return getattr(getattr(layout, group), inner) if dot else getattr(layout, name)


def _values(request: PlanRequest, layout: Layout, name: str) -> Sequence[Any]:
    """The values a key steps through, ascending."""
    choice, f = CHOICES[name], features(request.trainer)
    if choice.kind == "bool":
        return (False, True)
    if name == "recompute.granularity":
        return f.recompute_granularities
    if choice.kind == "word":
        return (*((None,) if choice.nullable else ()), *choice.words)
    if name == "zero_stage":
        return f.zero_stages
    if name == "micro_batch_size":
        return divisors(max(1, request.global_batch_size // layout.data_parallel))
    if name == "recompute.layers":
        return range(1, -(-request.model.layers // layout.pipeline_parallel) + 1)
    if name == "virtual_pipeline":
        return divisors(max(1, request.model.layers // layout.pipeline_parallel))
    if name == "expert_parallel":
        return divisors(request.model.experts or 1)
    others = (
        layout.tensor_parallel
        * layout.pipeline_parallel
        * layout.context_parallel
        // int(_value(layout, name))
    )
    return divisors(max(1, request.gpus // others))


def _next(values: Sequence[Any], now: Any, direction: int) -> Any:
    """The value a step away, or the same at either end."""
    if now not in values:
        return values[0 if direction < 0 else -1]
    place = list(values).index(now) + (1 if direction > 0 else -1)
    return values[min(max(place, 0), len(values) - 1)]
