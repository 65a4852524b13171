"""Owns judging all candidates of a request: which rules they break, what they need and how long they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpt_tune.layouts import legality
from gpt_tune.layouts.batch import GRANULARITIES, METHODS, LayoutBatch
from gpt_tune.layouts.rule import LegalityRule
from gpt_tune.layouts.stages import most_layers
from gpt_tune.planner import rank, space
from gpt_tune.planner.evaluate import LARGEST_OOM_PROBABILITY, Evaluator

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# Recomputed layers are chosen so that the layout is comfortable, not on the edge: the last layers cost little time,
# and at a risk of 10 % every layout with them lost to whole recompute.
COMFORTABLE = 0.005
# Layouts that are this much slower than the best without recompute are not worth finding its layers for.
_HOPELESS = 1.5
RULES: tuple[LegalityRule, ...] = (*legality.RULES, *legality.WARNINGS)


@dataclass(frozen=True, slots=True)
class Judged:
    """Candidates and what is known of them.

    breaks: how many rules each breaks; first: the index in RULES of the first one (-1: none).
    legal: indices of those that break none; oom, device_gib and seconds belong to these, in this order.
    """

    batch: LayoutBatch
    breaks: Ints
    first: Ints
    legal: NDArray[np.intp]
    oom: Floats
    device_gib: Floats
    seconds: Floats

    @property
    def fitting(self) -> NDArray[np.intp]:
        """Positions within `legal` of what is more likely to fit than not."""
        return np.flatnonzero(self.oom <= LARGEST_OOM_PROBABILITY)

    @property
    def score(self) -> Floats:
        """Expected seconds of each legal candidate."""
        return rank.expected_seconds(self.seconds, self.oom)


def judge(evaluator: Evaluator) -> Judged:
    """Every candidate of the request."""
    judged = _judged(evaluator, space.candidates(evaluator.request, evaluator.setting))
    if not space.wants_block(evaluator.request, evaluator.setting):
        return judged
    more = _judged(evaluator, _block_layouts(evaluator, judged))
    return _both(judged, more)


def _judged(evaluator: Evaluator, batch: LayoutBatch) -> Judged:
    breaks, first = _breaks(evaluator, batch)
    legal = np.flatnonzero(breaks == 0)
    subset = batch.take(legal)
    oom, device = evaluator.oom_probability(subset)
    return Judged(batch, breaks, first, legal, oom, device, evaluator.seconds(subset))


def _breaks(evaluator: Evaluator, batch: LayoutBatch) -> tuple[Ints, Ints]:
    """Rules each candidate breaks. A warning that would leave nothing is what the user asked for: it is dropped."""
    setting = evaluator.setting
    breaks, first = legality.broken(batch, setting)
    for i, rule in enumerate(legality.WARNINGS, start=len(legality.RULES)):
        mask = rule.mask(batch, setting)
        if np.any((breaks == 0) & ~mask):
            first = np.where(mask & (breaks == 0), i, first)
            breaks = breaks + mask
    return breaks, first


def _block_layouts(evaluator: Evaluator, judged: Judged) -> LayoutBatch:
    """Method block with as few layers as memory allows, for every layout that needs recompute and may win."""
    asked = "recompute.method" in evaluator.request.fixed
    base = _without_recompute(evaluator, judged)
    most = most_layers(evaluator.request.model.layers, base.pipeline_parallel) // base.virtual_pipeline
    tight = evaluator.oom_probability(base)[0] > COMFORTABLE
    helped = evaluator.oom_probability(_with_block(base, most))[0] <= LARGEST_OOM_PROBABILITY
    worth = helped if asked else helped & tight
    base, high = base.take(worth), most[worth]
    low = np.zeros_like(high)
    while np.any(low + 1 < high):
        open_ = low + 1 < high
        middle = np.maximum((low + high) // 2, 1)
        enough = evaluator.oom_probability(_with_block(base, middle))[0] <= COMFORTABLE
        high = np.where(open_ & enough, middle, high)
        low = np.where(open_ & ~enough, middle, low)
    return _with_block(base, high)


def _without_recompute(evaluator: Evaluator, judged: Judged) -> LayoutBatch:
    """Legal candidates with recompute taken out, without those too slow to win."""
    plain = {k: v for k, v in evaluator.request.fixed.items() if not k.startswith("recompute.")}
    request = replace(evaluator.request, fixed={**plain, "recompute.granularity": "none"})
    batch = space.candidates(request, evaluator.setting)
    batch = batch.take(_breaks(evaluator, batch)[0] == 0)
    fitting = judged.fitting
    if len(fitting) == 0:
        return batch
    best = float(np.min(judged.score[fitting]))
    return batch.take(evaluator.seconds(batch) <= _HOPELESS * best)


def _with_block(batch: LayoutBatch, layers_per_chunk: Ints) -> LayoutBatch:
    return replace(
        batch,
        recompute_granularity=np.full_like(layers_per_chunk, GRANULARITIES.index("full")),
        recompute_method=np.full_like(layers_per_chunk, METHODS.index("block")),
        recompute_layers=layers_per_chunk * batch.virtual_pipeline,
    )


def together(parts: Sequence[Judged]) -> Judged:
    """Candidates of several requests as one."""
    whole = parts[0]
    for part in parts[1:]:
        whole = _both(whole, part)
    return whole


def _both(a: Judged, b: Judged) -> Judged:
    return Judged(
        LayoutBatch.join([a.batch, b.batch]),
        np.concatenate([a.breaks, b.breaks]),
        np.concatenate([a.first, b.first]),
        np.concatenate([a.legal, b.legal + len(a.batch)]),
        np.concatenate([a.oom, b.oom]),
        np.concatenate([a.device_gib, b.device_gib]),
        np.concatenate([a.seconds, b.seconds]),
    )
