"""Owns whether a layout can run: every rule over a whole batch at once, and in words for one layout."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpt_tune.layouts import (
    legality_counts,
    legality_precision,
    legality_recompute,
    legality_sequence,
    legality_trainer,
)
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.rule import Bools, LegalityRule, Setting, Violation

__all__ = [
    "ALL_RULES",
    "FOLLOW_FROM_GPUS",
    "RULES",
    "WARNINGS",
    "Setting",
    "Violation",
    "broken",
    "legal",
    "problems",
    "warnings",
]

ALL_RULES: tuple[LegalityRule, ...] = (
    *legality_counts.RULES,
    *legality_trainer.RULES,
    *legality_sequence.RULES,
    *legality_recompute.RULES,
    *legality_precision.RULES,
)
# Rules that stop the trainer, and rules the search keeps to although the trainer would start.
RULES = tuple(r for r in ALL_RULES if not r.avoid)
WARNINGS = tuple(r for r in ALL_RULES if r.avoid)
# Rules about data-parallel ranks, whose number is wrong when that of the GPUs is.
FOLLOW_FROM_GPUS = ("global-batch", "ranks-ep")


def broken(
    batch: LayoutBatch, setting: Setting, rules: tuple[LegalityRule, ...] = RULES
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each layout: how many of the rules it breaks, and the index of the first of them (-1: none)."""
    count = np.zeros(len(batch), dtype=np.int64)
    first = np.full(len(batch), -1, dtype=np.int64)
    for i, rule in enumerate(rules):
        mask = rule.mask(batch, setting)
        first[mask & (count == 0)] = i
        count += mask
    return count, first


def legal(batch: LayoutBatch, setting: Setting) -> Bools:
    """Which layouts the trainer accepts."""
    return np.asarray(broken(batch, setting)[0] == 0)


def problems(layout: Layout, setting: Setting) -> tuple[Violation, ...]:
    """Every rule that stops this layout, in words; without those that only follow from a wrong number of GPUs."""
    found = _violations(layout, setting, RULES)
    if any(v.rule == "gpus" for v in found):
        return tuple(v for v in found if v.rule not in FOLLOW_FROM_GPUS)
    return found


def warnings(layout: Layout, setting: Setting) -> tuple[Violation, ...]:
    """Every reason not to choose this layout although the trainer would start."""
    return _violations(layout, setting, WARNINGS)


def _violations(layout: Layout, setting: Setting, rules: tuple[LegalityRule, ...]) -> tuple[Violation, ...]:
    batch = LayoutBatch.of([layout])
    return tuple(r.violation(layout, setting) for r in rules if r.mask(batch, setting)[0])
