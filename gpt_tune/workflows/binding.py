"""Owns what limits a layout in one line: the largest parts of its step and of its fullest stage's memory."""

from __future__ import annotations

from gpt_tune.planner.types import Plan
from gpt_tune.words import percent_words

_STEP = {
    "compute": "computing", "tensor_parallel": "TP", "context_parallel": "CP", "expert_parallel": "EP",
    "pipeline_bubble": "bubble", "pipeline_p2p": "PP", "data_parallel": "DP", "optimizer": "optimizer",
    "other": "the host",
}  # fmt: skip
_MEMORY = ("parameters", "gradients", "optimizer", "activations", "logits", "buffers", "transient")
_WORTH_NAMING = 0.02  # of the step


def binding_words(plan: Plan) -> str:
    """`computing 82 %, bubble 9.3 % of the step; activations 62 of 144 GiB`."""
    return "; ".join(filter(None, (_time(plan), _memory(plan))))


def _time(plan: Plan) -> str:
    step = plan.step
    if step.seconds <= 0:
        return ""
    shares = sorted(((getattr(step, key) / step.seconds, name) for key, name in _STEP.items()), reverse=True)
    named = [f"{name} {percent_words(share)}" for share, name in shares[:2] if share >= _WORTH_NAMING]
    return f"{', '.join(named)} of the step"


def _memory(plan: Plan) -> str:
    worst = max(plan.memory.stages, key=lambda stage: stage.total, default=None)
    if worst is None:
        return ""
    name = max(_MEMORY, key=lambda key: float(getattr(worst, key)))
    return f"{name} {getattr(worst, name):.0f} of {worst.total:.0f} GiB"
