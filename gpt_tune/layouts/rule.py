"""Owns what a legality rule is: a vectorised condition, and words for one layout that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.layouts.trainers import TrainerFeatures, features, pipeline_engine_mask
from gpt_tune.models.shape import ModelShape

Bools = NDArray[np.bool_]
# A boolean array, or one bool for a whole batch. NumPy's stubs make `array & bool` Any, so this says no more.
Mask = Any


@dataclass(frozen=True, slots=True)
class Setting:
    """What a layout is judged against. gpus is the number the user has."""

    model: ModelShape
    node: Node
    trainer: Trainer
    gpus: int
    seq_length: int

    @property
    def features(self) -> TrainerFeatures:
        return features(self.trainer)

    @property
    def is_megatron_deepspeed(self) -> bool:
        return self.trainer.name == "megatron-deepspeed"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule in words with the numbers, and the one change that mends it."""

    rule: str
    text: str
    fix: str


Fails = Callable[[LayoutBatch, Setting], Mask]
Words = Callable[[Layout, Setting], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class LegalityRule:
    """fails: which layouts of a batch break it. words: (text, fix) for one that does.

    avoid: the trainer starts, but the layout is pointless or known to break in some released version; the
    search does not propose it by itself, and a user who fixes it gets the words as a warning.
    """

    id: str
    fails: Fails
    words: Words
    source: str
    avoid: bool = False

    def mask(self, batch: LayoutBatch, setting: Setting) -> Bools:
        return np.broadcast_to(np.asarray(self.fails(batch, setting), dtype=np.bool_), (len(batch),))

    def violation(self, layout: Layout, setting: Setting) -> Violation:
        text, fix = self.words(layout, setting)
        return Violation(self.id, text, fix)


def engine_mask(b: LayoutBatch, s: Setting) -> Bools:
    """Which layouts run in Megatron-DeepSpeed's pipeline engine (see trainers.pipeline_engine)."""
    return pipeline_engine_mask(b.zero_stage, b.context_parallel, s.trainer)


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def closest(candidates: list[int], wanted: int) -> int:
    """The candidate nearest to what was wanted, the smaller of two equally near."""
    return min(candidates, key=lambda x: (abs(x - wanted), x))


def two_closest(candidates: list[int], wanted: int) -> str:
    """The candidates just below and above what was wanted, as words: "4 or 8"."""
    below = [c for c in candidates if c < wanted]
    above = [c for c in candidates if c > wanted]
    picked: list[Any] = [*([max(below)] if below else []), *([min(above)] if above else [])]
    return " or ".join(str(p) for p in picked)
