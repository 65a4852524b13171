"""Owns turning one number of a plan: those of the layout, and those of the question (GPUs, batch, sequence length)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpt_tune import planner
from gpt_tune.layouts.layout import Layout
from gpt_tune.planner.build import derived
from gpt_tune.planner.types import EstimateResult, Plan, PlanRequest

GPUS, BATCH, LENGTH = "gpus", "global_batch_size", "seq_length"
# Numbers of the question itself, which every layout shares.
ASKED = (GPUS, BATCH, LENGTH)
_MOST_GPUS = 65_536
_LENGTHS = tuple(2**n for n in range(7, 21))  # 128 to 1M tokens


@dataclass(frozen=True, slots=True)
class Turned:
    """What came of one turn: the question as it is now, and the layout judged and estimated for it."""

    request: PlanRequest
    result: EstimateResult


@dataclass(frozen=True, slots=True)
class Turnable:
    """One number that can be turned: the key of the planner, a short label, the value in words."""

    key: str
    label: str
    value: str


def turnables(request: PlanRequest, layout: Layout) -> list[Turnable]:
    """Every number of a layout that may change for this trainer and model, those that matter most first."""
    recompute = layout.recompute
    found = [
        Turnable("tensor_parallel", "TP", str(layout.tensor_parallel)),
        Turnable("pipeline_parallel", "PP", str(layout.pipeline_parallel)),
        Turnable("zero_stage", "ZeRO", str(layout.zero_stage)),
        Turnable("micro_batch_size", "MBS", str(layout.micro_batch_size)),
        Turnable("recompute.granularity", "recompute", recompute.granularity),
    ]
    if recompute.granularity == "full":
        found.append(Turnable("recompute.layers", "layers", str(recompute.layers or 1)))
    found.append(Turnable("sequence_parallel", "SP", _switch(layout.sequence_parallel)))
    found.append(Turnable("context_parallel", "CP", str(layout.context_parallel)))
    if request.model.experts:
        found.append(Turnable("expert_parallel", "EP", str(layout.expert_parallel)))
    found += [
        Turnable("virtual_pipeline", "VP", str(layout.virtual_pipeline)),
        Turnable("flash_attention", "flash", _switch(layout.flash_attention)),
        Turnable("precision", "precision", layout.precision),
        Turnable(BATCH, "batch", str(request.global_batch_size)),
        Turnable(LENGTH, "length", str(request.seq_length)),
        Turnable(GPUS, "GPUs", str(request.gpus)),
    ]
    return found


def turn(request: PlanRequest, plan: Plan, key: str, by: int) -> Turned:
    """The plan with one number a step up (1) or down (-1); what follows from it follows. UserError for no such key."""
    if key not in ASKED:
        return Turned(request, _unranked(planner.what_if(request, plan, key, by)))
    changed = _asked(request, key, by)
    layout = derived(plan.layout, changed)
    if layout.gpus != changed.gpus:  # fewer GPUs than the splits take: legality says what does not fit
        layout = replace(layout, data_parallel=max(1, layout.data_parallel))
    result = planner.estimate(replace(changed, fixed={}, precision=layout.precision), layout)
    return Turned(changed, _unranked(result))


def _unranked(result: EstimateResult) -> EstimateResult:
    """A turned layout is nobody's first choice but the user's: choosing it fixes it."""
    return result if result.plan is None else replace(result, plan=replace(result.plan, rank=0))


def _asked(request: PlanRequest, key: str, by: int) -> PlanRequest:
    if key == BATCH:
        return replace(
            request, global_batch_size=_halved(request.global_batch_size, by), global_batch_sizes=()
        )
    if key == LENGTH:
        return replace(request, seq_length=_beside(_LENGTHS, request.seq_length, by))
    return replace(request, gpus=_beside(_sizes(request), request.gpus, by))


def _halved(value: int, by: int) -> int:
    """Doubled, or halved where that stays whole."""
    if by > 0:
        return value * 2
    return value // 2 if value % 2 == 0 else value


def _sizes(request: PlanRequest) -> Sequence[int]:
    """Parts of a node, then whole nodes by doubling."""
    node = max(request.node.gpus_per_node, 1)
    parts = [n for n in (1, 2, 4, 8, 16) if n < node and node % n == 0]
    wholes = [node * 2**n for n in range(20) if node * 2**n <= _MOST_GPUS]
    return (*parts, *wholes)


def _beside(values: Sequence[int], now: int, by: int) -> int:
    """The next of these values above or below what stands now, or what stands now at the end."""
    others = [v for v in values if (v > now if by > 0 else v < now)]
    if not others:
        return now
    return min(others) if by > 0 else max(others)


def _switch(value: bool) -> str:
    return "on" if value else "off"
