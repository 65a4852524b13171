"""Owns what a best practice is: a condition on a situation, words with its numbers, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.rule import Setting
from gpt_tune.memory.types import MemoryEstimate, StageMemory
from gpt_tune.timing.types import StepEstimate

# explain: why the layout looks so. note: good to know. warn: likely to cost time or fail.
Severity = Literal["explain", "note", "warn"]


@dataclass(frozen=True, slots=True)
class Situation:
    """A layout with its predictions, and what it runs on."""

    setting: Setting
    layout: Layout
    memory: MemoryEstimate
    step: StepEstimate

    @property
    def worst(self) -> StageMemory:
        """The stage that needs most memory."""
        return max(self.memory.stages, key=lambda s: s.total)

    @property
    def bubble(self) -> float:
        """Share of the step that pipeline stages wait at its ends."""
        extra = (self.layout.pipeline_parallel - 1) / self.layout.virtual_pipeline
        return extra / (self.layout.gradient_accumulation_steps + extra)


@dataclass(frozen=True, slots=True)
class Practice:
    """One best practice. environment: variables it sets. fix: what a user or lint can do."""

    id: str
    severity: Severity
    when: Callable[[Situation], bool]
    words: Callable[[Situation], str]
    source: str
    fix: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Advice:
    """A practice that applies, in words."""

    rule: str
    severity: Severity
    text: str
    source: str
    fix: str
