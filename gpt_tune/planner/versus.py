"""Owns the reason that sets a plan apart: what it gains and loses against its nearest rival of the ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.planner import rank
from gpt_tune.planner.types import Plan, PlanRequest, Reason
from gpt_tune.words import percent_words, seconds_words

RULE = "versus"
_SOURCE = "gpt-tune's own estimate"
# Differences smaller than these (shares of the step; GiB; chance) are not worth a word.
_SAME, _WORTH_A_WORD, _GIB, _CHANCE = 0.001, 0.002, 1.0, 0.01
_MOST = 0.8  # of one side of a comparison: then one part says it all
# The factors of `rank.cautions` of each plan, by its rank.
_Risks = Mapping[int, Sequence[float]]
_PARTS = {
    "compute": "computing",
    "tensor_parallel": "tensor-parallel communication",
    "context_parallel": "context-parallel communication",
    "expert_parallel": "expert-parallel communication",
    "pipeline_bubble": "pipeline bubble",
    "pipeline_p2p": "sending between stages",
    "data_parallel": "data-parallel communication",
    "optimizer": "optimizer",
    "other": "waiting for the host",
}
_KEYS = {
    "tensor_parallel": "TP",
    "pipeline_parallel": "PP",
    "virtual_pipeline": "VPP",
    "context_parallel": "CP",
    "expert_parallel": "EP",
    "data_parallel": "DP",
    "zero_stage": "ZeRO",
    "micro_batch_size": "MBS",
    "global_batch_size": "global batch",
}


def told_apart(request: PlanRequest, plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """The plans, each with its reason against number 1 (number 1: against number 2) in front of the others."""
    if len(plans) < 2:
        return tuple(plans)
    rivals = [plans[1], *(plans[0] for _ in plans[1:])]
    risks = _risks(request, plans)
    return tuple(
        replace(plan, reasons=(Reason(RULE, _words(request, risks, plan, rival), _SOURCE), *plan.reasons))
        for plan, rival in zip(plans, rivals)
    )


def _words(request: PlanRequest, risks: _Risks, plan: Plan, rival: Plan) -> str:
    other = f"number {rival.rank} ({_differences(plan, rival)})"
    if request.objective == "headroom":
        return f"{_memory(plan, rival)} than {other}; {_speed(plan, rival)}."
    first = plan.rank < rival.rank
    gain = _per_sequence(rival) / _per_sequence(plan) - 1.0
    behind = f"number {rival.rank} {_why_behind(risks, rival, plan)}"
    if not first:
        behind = f"it {_why_behind(risks, plan, rival)}"
    if abs(gain) <= _SAME:
        return f"As fast as {other}; {behind}."
    if gain > 0:
        text = f"{percent_words(gain)} faster than {other}{_because(plan, rival, gain)}"
        return f"{text}." if first else f"{text}; but {behind}."
    text = f"{percent_words(-gain)} slower than {other}"
    return f"{text}, but {behind}." if first else f"{text}{_because(plan, rival, gain)}."


def _per_sequence(plan: Plan) -> float:
    return plan.step.seconds / plan.layout.global_batch_size


def _differences(plan: Plan, rival: Plan) -> str:
    """The rival's values of the keys in which the two differ."""
    mine, its = plan.layout, rival.layout
    words = [
        f"{short} {getattr(its, k)}" for k, short in _KEYS.items() if getattr(mine, k) != getattr(its, k)
    ]
    if mine.sequence_parallel != its.sequence_parallel:
        words.append("sequence parallel" if its.sequence_parallel else "no sequence parallel")
    if mine.recompute != its.recompute:
        recompute = its.recompute
        what = "no" if recompute.granularity == "none" else recompute.granularity
        layers = f" of {recompute.layers} layers at a time" if recompute.method == "uniform" else ""
        layers = f" of {recompute.layers} layers a stage" if recompute.method == "block" else layers
        words.append(
            f"{what} recompute{layers if recompute.layers != 1 or recompute.method == 'block' else ''}"
        )
    if mine.flash_attention != its.flash_attention:
        words.append("flash attention" if its.flash_attention else "no flash attention")
    return ", ".join(words) or "the same keys"


def _because(plan: Plan, rival: Plan, gain: float) -> str:
    """The parts of the step that decide, and those that go the other way, in seconds of a step of this batch."""
    share = plan.layout.global_batch_size / rival.layout.global_batch_size
    less = {name: share * getattr(rival.step, name) - getattr(plan.step, name) for name in _PARTS}
    worth = _WORTH_A_WORD * plan.step.seconds
    better = sorted((name for name in less if less[name] >= worth), key=lambda name: -less[name])
    worse = sorted((name for name in less if less[name] <= -worth), key=lambda name: less[name])
    sides = {"less": _parts(better, less), "more": _parts(worse, less)}
    first, second = ("less", "more") if gain > 0 else ("more", "less")
    if not sides[first]:
        return ""
    against = f", against {sides[second]}" if sides[second] else ""
    return f": {sides[first]}{against}"


def _parts(names: Sequence[str], less: Mapping[str, float]) -> str:
    """The largest parts with their seconds, as many as make up most of their side, at most two."""
    if not names:
        return ""
    total = sum(abs(less[name]) for name in names)
    count = 1 if abs(less[names[0]]) >= _MOST * total else 2
    word = "less" if less[names[0]] > 0 else "more"
    return " and ".join(f"{seconds_words(abs(less[n]))} {word} {_PARTS[n]}" for n in names[:count])


def _speed(plan: Plan, rival: Plan) -> str:
    gain = _per_sequence(rival) / _per_sequence(plan) - 1.0
    if abs(gain) <= _SAME:
        return "as fast"
    return f"{percent_words(abs(gain))} {'faster' if gain > 0 else 'slower'}"


def _memory(plan: Plan, rival: Plan) -> str:
    less = rival.memory.device_gib - plan.memory.device_gib
    return f"{abs(less):.0f} GiB {'less' if less > 0 else 'more'}"


def _why_behind(risks: _Risks, behind: Plan, ahead: Plan) -> str:
    """Why the ranking puts a plan behind one that is no faster: its risks, else that it is less simple."""
    held = _held_against(risks, behind, ahead)
    if held:
        # The heaviest first, and a second where the first alone does not make up for the time.
        needed = _per_sequence(ahead) / _per_sequence(behind)
        enough = held[0][0] * (1.0 + rank.TIE) >= needed
        return " and ".join(words for _, words in held[: 1 if enough else 2])
    more = behind.memory.device_gib - ahead.memory.device_gib
    ways = _splits(behind), _splits(ahead)
    if ways[0] > ways[1]:
        return f"cuts the model into {ways[0]} pieces, not {ways[1]}"
    if more > _GIB:
        return f"needs {more:.0f} GiB more"
    return _needless(behind, ahead)


def _held_against(risks: _Risks, behind: Plan, ahead: Plan) -> list[tuple[float, str]]:
    """What the ranking holds against the one and not the other, as factors of time with words, heaviest first."""
    chances = [p.memory.oom_probability or 0.0 for p in (behind, ahead)]
    held = [(b / a, words) for b, a, words in zip(risks[behind.rank], risks[ahead.rank], rank.CAUTIONS)]
    if chances[0] - chances[1] > _CHANCE:
        words = f"may run out of memory ({percent_words(chances[0])})"
        held.append(((1.0 - chances[1]) / max(1.0 - chances[0], 1e-9), words))
    return sorted(((factor, words) for factor, words in held if factor > 1.0), key=lambda each: -each[0])


def _needless(behind: Plan, ahead: Plan) -> str:
    """What a plan switches on without gain."""
    b, a = behind.layout, ahead.layout
    if b.recompute != a.recompute and b.recompute.granularity != "none":
        return "recomputes without gain"
    if b.zero_stage > a.zero_stage:
        return f"turns ZeRO-{b.zero_stage} on without gain"
    if b.tensor_parallel > a.tensor_parallel:
        return f"cuts matrices into {b.tensor_parallel} pieces, not {a.tensor_parallel}"
    if b.sequence_parallel and not a.sequence_parallel:
        return "turns sequence parallel on without gain"
    return "is no simpler"


def _splits(plan: Plan) -> int:
    x = plan.layout
    return (
        x.tensor_parallel * x.pipeline_parallel * x.virtual_pipeline * x.context_parallel * x.expert_parallel
    )


def _risks(request: PlanRequest, plans: Sequence[Plan]) -> _Risks:
    """What the ranking holds against each plan, by its rank, in the order of its cautions."""
    shares = np.array(
        [p.memory.device_gib / p.memory.limit_gib if p.memory.limit_gib else 0.0 for p in plans]
    )
    batch = LayoutBatch.of([plan.layout for plan in plans])
    held = rank.cautions(batch, plans[0].trainer, shares, request.node.nvlink_domain_gpus)
    return {plan.rank: row for plan, row in zip(plans, np.stack(held, axis=1).tolist())}
