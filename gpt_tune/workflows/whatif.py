"""Owns changing one number of a plan, by a step or as typed: those of the layout, and those of the question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpt_tune import planner, recipes
from gpt_tune.errors import UserError
from gpt_tune.hardware.sizes import nodes_of
from gpt_tune.layouts import choices
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.choices import ACCUMULATION, CHOICES
from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.trainers import is_finetune
from gpt_tune.planner import mend
from gpt_tune.planner.build import derived
from gpt_tune.planner.evaluate import LARGEST_OOM_PROBABILITY, Evaluator
from gpt_tune.planner.request import normalised
from gpt_tune.planner.types import EstimateResult, Plan, PlanRequest, Problem, Rejected
from gpt_tune.workflows.ordering import pairs
from gpt_tune.workflows.turnables import (
    ASKED,
    AUTOMATIC,
    BATCH,
    GPUS,
    LENGTH,
    NAMES,
    TUNING_VALUES,
    Turnable,
    planners_word,
    tuning_values,
    turnables,
)

__all__ = ["ASKED", "Turnable", "Turned", "held", "mended", "turn", "turnables", "typed", "typed_all"]

# Larger ones are typing errors; the limits also keep products inside 64 bits.
_MOST = {GPUS: 65_536, BATCH: 10_000_000, LENGTH: 10_000_000}
_LENGTHS = tuple(2**n for n in range(7, 21))  # 128 to 1M tokens
_KEY = re.compile(r"\b([a-z_]+(?:\.[a-z_]+)?)=(\w+)")
# The first change that advice names, with the keys that go with it (planner.cure, planner.mend).
_CHANGE = re.compile(rf"{_KEY.pattern}(?: or \d+)*(?: with {_KEY.pattern}(?:, {_KEY.pattern})*)?")
_LENGTH = re.compile(r"sequence length of (\d+)")
_MORE_GPUS = re.compile(r"(\d+) GPUs(?: with global_batch_size=(\d+))?|--gpus (\d+).*")


def held(recipe: str) -> frozenset[str]:
    """Keys that a recipe's jobs need as they are, so that nobody turns them."""
    return frozenset(recipes.required(recipe)) if recipe in recipes.names() else frozenset()


@dataclass(frozen=True, slots=True)
class Turned:
    """What came of one change: the question as it is now, and the layout judged and estimated for it.

    note: why nothing has changed, where it has not. memory: what is wrong where it is legal and does not fit.
    """

    request: PlanRequest
    result: EstimateResult
    note: str = ""
    memory: Problem | None = None


def turn(request: PlanRequest, plan: Plan, key: str, by: int) -> Turned:
    """The plan with one number a step up (1) or down (-1); what follows from it follows. UserError for no such key."""
    if key in ASKED:
        turned = _asking(request, plan.layout, _asked(request, key, by))
    elif key == ACCUMULATION:
        words = (None, *CHOICES[key].words)
        now = words.index(request.trainer.gradient_accumulation_dtype)
        turned = _adding_up_in(request, plan.layout, words[min(max(now + by, 0), len(words) - 1)])
    elif is_finetune(request.trainer) and key in TUNING_VALUES:
        turned = _with(
            request, plan.layout, choices.parse_fix([f"{key}={_tuning_step(request, plan, key, by)}"])
        )
    else:
        turned = Turned(request, _unranked(planner.what_if(request, plan, key, by)))
    same = turned.result.plan is not None and turned.result.plan.layout == plan.layout
    if same and turned.request == request:
        return replace(turned, note=f"{NAMES[key][0]} goes no {'further up' if by > 0 else 'lower'} here.")
    return _against_the_limit(turned)


def _against_the_limit(turned: Turned) -> Turned:
    """With the problem of a layout that runs out of memory, and the one change with which it would not."""
    plan = turned.result.plan
    risk = 0.0 if plan is None else plan.memory.oom_probability or 0.0
    if plan is None or not turned.result.legal or risk <= LARGEST_OOM_PROBABILITY:
        return turned
    free = normalised(replace(turned.request, precision=plan.layout.precision, fixed={}))
    fix = mend.memory_fixes(Evaluator(free), LayoutBatch.of([plan.layout]))[0]
    need, limit = plan.memory.device_gib, plan.memory.limit_gib or 0.0
    text = f"It needs about {need:.0f} GiB of {limit:.0f} GiB: it runs out of memory with a chance of {risk:.0%}."
    return replace(turned, memory=Problem("out-of-memory", text, fix or "more GPUs"))


def _tuning_step(request: PlanRequest, plan: Plan, key: str, by: int) -> str:
    """The next of the few values that fine-tuning has."""
    values = list(TUNING_VALUES[key].values())
    now = planners_word(request, key, dict(tuning_values(plan.layout))[key])
    at = values.index(now) if now in values else 0
    return values[min(max(at + (by if key == "zero_stage" else -by), 0), len(values) - 1)]


def typed(request: PlanRequest, plan: Plan, key: str, text: str) -> Turned:
    """The plan with one number as the user wrote it; what cannot be taken is a problem, and nothing has changed."""
    return _against_the_limit(_typed(request, plan, key, text))


def _typed(request: PlanRequest, plan: Plan, key: str, text: str) -> Turned:
    try:
        if key in ASKED:
            return _asking(request, plan.layout, replace(request, **_whole(request, key, text)))
        if key == ACCUMULATION and text.strip().lower() == AUTOMATIC:
            return _adding_up_in(request, plan.layout, None)
        fixed = choices.parse_fix([f"{key}={planners_word(request, key, text)}"])
    except UserError as error:
        problem = Problem("value", error.message, error.hint)
        return Turned(request, EstimateResult(legal=False, problems=(problem,), plan=None))
    if key == ACCUMULATION:
        return _adding_up_in(request, plan.layout, fixed[key])
    return _with(request, plan.layout, fixed)


def typed_all(request: PlanRequest, plan: Plan, text: str) -> Turned:
    """The plan with several numbers as written, `tp=8 batch=512`; the first that cannot be taken is the problem."""
    turned = Turned(request, EstimateResult(legal=True, problems=(), plan=plan))
    for key, value in pairs(text):
        name = "recompute.granularity" if key == "recompute" else key
        now = turned.result.plan
        if now is None:
            break
        turned = typed(turned.request, now, name, value)
    return turned


def mended(request: PlanRequest, rejected: Rejected) -> Turned:
    """A near miss with the one change that was advised for it; as it is where the advice is no change of a key."""
    gpus, length = _MORE_GPUS.fullmatch(rejected.fix), _LENGTH.search(rejected.fix)
    if gpus is not None:
        count = int(gpus[1] or gpus[3])
        batch = int(gpus[2]) if gpus[2] else -(-request.global_batch_size // count) * count
        return _on_more_gpus(request, rejected.layout, count, batch)
    if length is not None:
        shorter = replace(request, seq_length=int(length[1]))
        return _against_the_limit(replace(_with(shorter, rejected.layout, {}), request=shorter))
    change = _CHANGE.search(rejected.fix)
    found = _KEY.findall(change[0]) if change is not None else []
    asked: dict[str, Any] = {key: int(value) for key, value in found if key in ASKED}
    changed = replace(request, **asked) if asked else request
    fixed = choices.parse_fix([f"{key}={value}" for key, value in found if key not in ASKED])
    return _against_the_limit(replace(_with(changed, rejected.layout, fixed), request=changed))


def _with(request: PlanRequest, layout: Layout, fixed: dict[str, Any]) -> Turned:
    changed = derived(choices.apply(layout, fixed), request, fixed)
    free = replace(request, precision=changed.precision, fixed={})
    return Turned(request, _unranked(planner.estimate(free, changed)))


def _adding_up_in(request: PlanRequest, layout: Layout, dtype: Any) -> Turned:
    """The same layout where gradients of micro batches are added up in another type; None is the trainer's own."""
    changed = replace(request, trainer=replace(request.trainer, gradient_accumulation_dtype=dtype))
    return replace(_with(changed, layout, {}), request=changed)


def _asking(request: PlanRequest, layout: Layout, changed: PlanRequest) -> Turned:
    """A layout for another question; `request` tells whether it is one."""
    return (
        replace(_with(changed, layout, {}), request=changed)
        if changed != request
        else _with(request, layout, {})
    )


def _on_more_gpus(request: PlanRequest, layout: Layout, gpus: int, batch: int) -> Turned:
    """The best layout of so many GPUs, with a batch that they can share: one that fits 8 is none for 256."""
    fixed = {k: v for k, v in request.fixed.items() if k not in ("data_parallel", "global_batch_size")}
    wider = replace(request, gpus=gpus, global_batch_size=batch, global_batch_sizes=(), fixed=fixed)
    best = planner.search(replace(wider, top=1)).plans
    return _with(wider, best[0].layout, {}) if best else _with(request, layout, {})


def _unranked(result: EstimateResult) -> EstimateResult:
    """A turned layout is nobody's first choice but the user's: choosing it fixes it."""
    return result if result.plan is None else replace(result, plan=replace(result.plan, rank=0))


def _whole(request: PlanRequest, key: str, text: str) -> dict[str, Any]:
    """A number of the question as typed. UserError with what would do."""
    said = text.strip().replace(",", "").replace("_", "")
    number = int(said) if said.isascii() and said.isdigit() else 0
    if not 1 <= number <= _MOST[key]:
        raise UserError(
            f"{NAMES[key][0]} is {text.strip()!r}.", f"Give a whole number from 1 to {_MOST[key]}."
        )
    if key == GPUS:
        nodes_of(number, max(request.node.gpus_per_node, 1))
    return {key: number, "global_batch_sizes": ()} if key == BATCH else {key: number}


def _asked(request: PlanRequest, key: str, by: int) -> PlanRequest:
    if key == BATCH:
        size = _halved(request.global_batch_size, by)
        return replace(request, global_batch_size=size, global_batch_sizes=())
    if key == LENGTH:
        return replace(request, seq_length=_beside(_LENGTHS, request.seq_length, by))
    return replace(request, gpus=_beside(_sizes(request), request.gpus, by))


def _halved(value: int, by: int) -> int:
    """Doubled, or halved where that stays whole."""
    if by > 0:
        return min(value * 2, _MOST[BATCH])
    return value // 2 if value % 2 == 0 else value


def _sizes(request: PlanRequest) -> Sequence[int]:
    """Parts of a node, then whole nodes by doubling."""
    node = max(request.node.gpus_per_node, 1)
    parts = [n for n in (1, 2, 4, 8, 16) if n < node and node % n == 0]
    wholes = [node * 2**n for n in range(20) if node * 2**n <= _MOST[GPUS]]
    return (*parts, *wholes)


def _beside(values: Sequence[int], now: int, by: int) -> int:
    """The next of these values above or below what stands now, or what stands now at the end."""
    others = [v for v in values if (v > now if by > 0 else v < now)]
    if not others:
        return now
    return min(others) if by > 0 else max(others)
