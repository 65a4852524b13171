"""Owns the shapes a plan is made of, and their JSON form. No arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpt_tune.hardware.parts import Node
from gpt_tune.jsonable import as_json
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.memory.finetune import Tuning
from gpt_tune.memory.types import MemoryEstimate
from gpt_tune.models.shape import ModelShape
from gpt_tune.timing.types import StepEstimate


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What the user wants planned. fixed: layout keys (dotted JSON paths) the search may not change.

    objective: step (fastest), gpus (fewest GPUs that fit and take at most target_seconds a step; `gpus` is then
    the most there are) or headroom (most memory left among layouts at most the share `within` slower than the
    fastest). global_batch_sizes: several to compare by tokens/s, global_batch_size being the first of them.
    tuning: adapters and optimizer of a fine-tuning trainer; others do not look at it.
    """

    model: ModelShape
    gpus: int
    node: Node
    seq_length: int
    global_batch_size: int
    trainer: Trainer = field(default_factory=Trainer)
    precision: str = "bf16"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    top: int = 10
    cluster: str | None = None  # names the calibration file; None uses the shipped one of the GPU
    objective: str = "step"
    target_seconds: float | None = None
    within: float = 0.05
    global_batch_sizes: tuple[int, ...] = ()
    tuning: Tuning = field(default_factory=Tuning)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a layout looks as it does: the rule's id, words, and where the rule comes from."""

    rule: str
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a layout is illegal or lost: the rule's id, words with the numbers, and the one change that fixes it."""

    rule: str
    text: str
    fix: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One ranked layout with predictions and reasons. environment: variables this layout needs.

    node: id of the node type the predictions are for.
    """

    rank: int
    trainer: Trainer
    layout: Layout
    memory: MemoryEstimate
    step: StepEstimate
    reasons: tuple[Reason, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    node: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "node": self.node,
            "trainer": self.trainer.to_json(),
            "layout": self.layout.to_json(),
            "memory": as_json(self.memory),
            "step": as_json(self.step),
            "reasons": [as_json(r) for r in self.reasons],
            "environment": dict(self.environment),
        }


@dataclass(frozen=True, slots=True)
class Rejected:
    """A near miss of the search."""

    layout: Layout
    rule: str
    text: str
    fix: str

    def to_json(self) -> dict[str, Any]:
        return {"layout": self.layout.to_json(), "rule": self.rule, "text": self.text, "fix": self.fix}


@dataclass(frozen=True, slots=True)
class Tried:
    """A number of GPUs that is not enough. seconds: its fastest step; None when nothing fits."""

    gpus: int
    seconds: float | None
    text: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found. searched: layouts looked at. seconds: the search itself, after import.

    gpus: the number planned for, where the objective chose it. tried: other numbers of GPUs looked at and why
    they were not enough.
    """

    plans: tuple[Plan, ...]
    rejected: tuple[Rejected, ...]
    rejected_count: int
    searched: int
    seconds: float
    gpus: int | None = None
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True, slots=True)
class EstimateResult:
    """One given layout, legal or explained. plan is None when the layout cannot be estimated."""

    legal: bool
    problems: tuple[Problem, ...]
    plan: Plan | None
