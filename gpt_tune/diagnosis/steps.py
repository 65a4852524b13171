"""Owns judging the series of steps: NaN, spikes, a loss of exactly 0, a loss scale that collapsed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gpt_tune.logs.columns import Floats
from gpt_tune.logs.table import StepTable
from gpt_tune.logs.types import Step

RECENT = 4096  # steps judged; older ones were judged when they were new
HISTORY = 32  # steps that a spike is compared with
SPIKE_RATIO = 2.0
SPIKE_SPREAD = 6.0  # robust standard deviations
GRADIENT_RATIO = 100.0
RECOVERED_WITHIN = 1.25  # of the level before
COLLAPSED_SCALE = 1.0
REPEATS = 2


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something wrong with the numbers: the signature's id, and what fills its sentences.

    over: the numbers were good again afterwards.
    """

    id: str
    groups: dict[str, str]
    over: bool = False


def judge(table: StepTable, overflows: Sequence[tuple[float, float]] = ()) -> list[Trouble]:
    """What the newest segment's steps (and DeepSpeed's overflow lines) show."""
    steps = table.recent(RECENT)
    found = [_nan(steps), _zero_loss(steps), _scale(steps, overflows), _spike(steps)]
    return [trouble for trouble in found if trouble is not None]


def _counted(steps: Sequence[Step]) -> list[Step]:
    """Steps on which the optimizer stepped: overflow on a skipped one is how fp16 works."""
    return [s for s in steps if not s.skipped]


def _nan(steps: Sequence[Step]) -> Trouble | None:
    counted = _counted(steps)
    bad = [i for i, s in enumerate(counted) if s.loss is not None and not math.isfinite(s.loss)]
    figure = "loss"
    if not bad:
        bad = _nan_gradients(counted)
        figure = "gradient norm"
    if not bad:
        return None
    first = bad[0]
    name = "loss" if figure == "loss" else "grad_norm"
    good = [v for s in counted[:first] if (v := getattr(s, name)) is not None and math.isfinite(v)]
    later = [v for s in counted[bad[-1] + 1 :] if (v := getattr(s, name)) is not None and math.isfinite(v)]
    groups = {"figure": figure, "iteration": str(counted[first].iteration)}
    if good:
        groups["good"] = f"{good[-1]:.4g}"
    return Trouble("F13", groups, over=bool(later))


def _nan_gradients(steps: Sequence[Step]) -> list[int]:
    """Where the gradient norm stays NaN or inf; a lone one is an overflow that the scaler dealt with."""
    bad = [i for i, s in enumerate(steps) if s.grad_norm is not None and not math.isfinite(s.grad_norm)]
    in_a_row = any(j == i + 1 for i, j in pairwise(bad))
    still = bool(bad) and bad[-1] == len(steps) - 1
    return bad if in_a_row and (still or len(bad) > 2) else []


def _zero_loss(steps: Sequence[Step]) -> Trouble | None:
    """The loss goes from a real value to exactly 0 and stays there."""
    known = [s for s in _counted(steps) if s.loss is not None and math.isfinite(s.loss)]
    zeros = 0
    while zeros < len(known) and known[len(known) - 1 - zeros].loss == 0.0:
        zeros += 1
    if zeros == 0 or zeros == len(known):
        return None
    good = known[len(known) - zeros - 1].loss or 0.0
    if good < 0.1:
        return None  # small losses round to 0; some objectives start there
    return Trouble("F17", {"good": f"{good:.4g}", "iteration": str(known[len(known) - zeros].iteration)})


def _scale(steps: Sequence[Step], overflows: Sequence[tuple[float, float]]) -> Trouble | None:
    """The loss scale at its floor, again and again. Placeholders (-1, 2^32, a constant 1 in bf16) never fall."""
    floor = [
        after
        for before, after in overflows[-2 * REPEATS :]
        if after <= COLLAPSED_SCALE or before <= COLLAPSED_SCALE
    ]
    if len(floor) >= REPEATS:
        return Trouble("F15", {"scale": f"{floor[-1]:g}"})
    scales = [(s.loss_scale, s.skipped) for s in steps if s.loss_scale is not None and s.loss_scale > 0]
    last = scales[-(REPEATS + 1) :]
    if len(last) <= REPEATS or max(scale for scale, _ in scales) <= 16:
        return None
    if all(scale <= COLLAPSED_SCALE and skipped for scale, skipped in last):
        return Trouble("F15", {"scale": f"{last[-1][0]:g}"})
    return None


def _spike(steps: Sequence[Step]) -> Trouble | None:
    """The last upward jump of the loss (or an enormous one of the gradient norm), and whether it came down."""
    counted = [s for s in _counted(steps) if s.loss is not None and math.isfinite(s.loss)]
    losses = np.array([s.loss for s in counted], dtype=np.float64)
    at = _jumps(losses)
    if len(at):
        return _spike_of("loss", counted, losses, at)
    with_norm = [s for s in _counted(steps) if s.grad_norm is not None and math.isfinite(s.grad_norm)]
    norms = np.array([s.grad_norm for s in with_norm], dtype=np.float64)
    at = _gradient_jumps(norms)
    return _spike_of("gradient norm", with_norm, norms, at) if len(at) else None


def _spike_of(figure: str, steps: Sequence[Step], values: Floats, at: Sequence[int]) -> Trouble:
    first = at[0]
    before = values[max(0, first - HISTORY) : first]
    level = float(np.median(before))
    peak = float(values[first:].max())
    recovered = bool(values[-1] <= RECOVERED_WITHIN * level)
    outcome = " and came down again" if recovered else " and has not come down"
    groups = {
        "figure": figure,
        "good": f"{level:.4g}",
        "peak": f"{peak:.4g}",
        "iteration": str(steps[first].iteration),
        "outcome": outcome,
    }
    return Trouble("F18", groups, over=recovered)


def _jumps(losses: Floats) -> list[int]:
    """Where a loss is over twice the level before it and far outside its scatter."""
    found = []
    for index in _over(losses, SPIKE_RATIO):
        before = losses[max(0, index - HISTORY) : index]
        if len(before) < 2:
            continue
        level = float(np.median(before))
        scatter = 1.4826 * float(np.median(np.abs(before - level)))
        if (
            losses[index]
            > max(SPIKE_RATIO * level, level + SPIKE_SPREAD * scatter, 1.5 * float(before.max()))
            and level > 0
        ):
            found.append(index)
    return found


def _gradient_jumps(norms: Floats) -> list[int]:
    found = []
    for index in _over(norms, GRADIENT_RATIO):
        before = norms[max(0, index - HISTORY) : index]
        level = float(np.median(before)) if len(before) else 0.0
        if len(before) >= 2 and level > 0 and norms[index] > GRADIENT_RATIO * level:
            found.append(index)
    return found


def _over(values: Floats, ratio: float) -> list[int]:
    """Candidates: values over `ratio` times the least of the ones before (a cheap test for long series)."""
    if len(values) < 3:
        return []
    least = np.minimum.accumulate(values)[:-1]
    found = np.flatnonzero(values[1:] > ratio * np.maximum(least, 0.0)) + 1
    return [int(i) for i in found.tolist()][:RECENT]
