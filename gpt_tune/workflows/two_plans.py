"""Owns what sets two layouts apart: keys that differ, keys that do not, and what each is predicted to come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpt_tune.errors import UserError
from gpt_tune.layouts.choices import ACCUMULATION
from gpt_tune.planner.types import Plan, SearchResult

STEP_PARTS = (
    "compute", "tensor_parallel", "context_parallel", "expert_parallel", "pipeline_bubble", "pipeline_p2p",
    "data_parallel", "optimizer", "other",
)  # fmt: skip
# Parts of a step that differ by less than this share of it say nothing.
_WORTH_A_LINE = 0.01
_CHANCE = 0.005


@dataclass(frozen=True, slots=True)
class Figure:
    """One predicted number of both. part: whether it is a part of the step time."""

    key: str
    a: float
    b: float
    unit: str
    part: bool = False


@dataclass(frozen=True, slots=True)
class TwoPlans:
    """differ: dotted key to both values. same: dotted key to the one value."""

    differ: Mapping[str, tuple[Any, Any]]
    same: Mapping[str, Any]
    figures: tuple[Figure, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "differ": {key: {"a": a, "b": b} for key, (a, b) in self.differ.items()},
            "same": dict(self.same),
            "figures": [{"key": f.key, "a": f.a, "b": f.b, "unit": f.unit or None} for f in self.figures],
        }


def two_plans(a: Plan, b: Plan) -> TwoPlans:
    """Every key of two layouts, then what they are predicted to come to."""
    first, second = _flat(a.layout.to_json()), _flat(b.layout.to_json())
    first["gpus"], second["gpus"] = a.layout.gpus, b.layout.gpus
    first[ACCUMULATION] = a.trainer.gradient_accumulation_dtype
    second[ACCUMULATION] = b.trainer.gradient_accumulation_dtype
    return TwoPlans(
        differ={key: (value, second[key]) for key, value in first.items() if value != second[key]},
        same={key: value for key, value in first.items() if value == second[key] and value is not None},
        figures=tuple(_figures(a, b)),
    )


def of_search(result: SearchResult, ranks: str) -> tuple[Plan, Plan]:
    """The two plans that `1,3` names. UserError for anything else."""
    found = {str(plan.rank): plan for plan in result.plans}
    wanted = [word.strip() for word in ranks.split(",")]
    if len(wanted) != 2 or any(word not in found for word in wanted):
        have = f"There are numbers 1 to {len(found)}." if found else "There is no layout to compare."
        raise UserError(
            f"{ranks!r} does not name two of the layouts found.", f"Write for example 1,2. {have}"
        )
    return found[wanted[0]], found[wanted[1]]


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A layout's JSON by dotted key."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


def _figures(a: Plan, b: Plan) -> list[Figure]:
    """What is predicted; parts of the step only where they differ by more than a hundredth of it."""
    found = [Figure("seconds", a.step.seconds, b.step.seconds, "s")]
    worth = _WORTH_A_LINE * max(a.step.seconds, b.step.seconds)
    for part in STEP_PARTS:
        mine, other = getattr(a.step, part), getattr(b.step, part)
        if abs(mine - other) > worth:
            found.append(Figure(part, mine, other, "s", part=True))
    pace = "tokens_per_second_per_gpu"
    found.append(Figure("model_tflops", a.step.model_tflops, b.step.model_tflops, ""))
    if a.layout.gpus != b.layout.gpus or a.layout.global_batch_size != b.layout.global_batch_size:
        found.append(Figure(pace, getattr(a.step, pace), getattr(b.step, pace), ""))
    found.append(Figure("device_gib", a.memory.device_gib, b.memory.device_gib, "GiB"))
    risk, other = a.memory.oom_probability, b.memory.oom_probability
    if risk is not None and other is not None and max(risk, other) >= _CHANCE:
        found.append(Figure("oom_probability", risk, other, ""))
    return found
