"""Owns judging the series of steps: NaN, spikes, a loss of exactly 0, a loss scale that collapsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from gpt_tune.logs.columns import Floats
from gpt_tune.logs.table import StepTable

RECENT = 4096  # steps judged; older ones were judged when they were new
HISTORY = 32  # steps that a spike is compared with
SPIKE_RATIO = 2.0
SPIKE_SPREAD = 6.0  # robust standard deviations
SPIKE_OVER_WORST = 1.5  # times the greatest value among those
GRADIENT_RATIO = 100.0
RECOVERED_WITHIN = 1.25  # of the level before
COLLAPSED_SCALE = 1.0
REPEATS = 2
CLIMB_WINDOW = 8  # steps of which a median is taken
CLIMB_RATIO = 1.5  # times the best level
CLIMB_LEVEL = 0.5  # smaller losses are of fine-tuning and reinforcement, and wander
REAL_LOSS = 0.1  # smaller losses round to 0, and some objectives start there


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something wrong with the numbers: the signature's id, and what fills its sentences.

    over: the numbers were good again afterwards.
    """

    id: str
    groups: dict[str, str]
    over: bool = False


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps on which the optimizer stepped (overflow on a skipped one is how fp16 works), and all loss scales."""

    iteration: Floats
    loss: Floats
    no_loss: NDArray[np.bool_]
    grad_norm: Floats
    no_norm: NDArray[np.bool_]
    scale: Floats  # of every step
    skipped: Floats


def judge(table: StepTable, overflows: Sequence[tuple[float, float]] = ()) -> list[Trouble]:
    """What the newest segment's steps (and DeepSpeed's overflow lines) show."""
    steps = _read(table)
    found = [_nan(steps), _zero_loss(steps), _scale(steps, overflows), _spike(steps) or _climb(steps)]
    return [trouble for trouble in found if trouble is not None]


def _read(table: StepTable) -> _Steps:
    columns = table.tail(RECENT, "loss", "grad_norm", "loss_scale", "skipped")
    skipped = np.nan_to_num(columns["skipped"][0])
    counted = skipped == 0
    loss, no_loss = columns["loss"]
    norm, no_norm = columns["grad_norm"]
    return _Steps(
        columns["iteration"][0][counted],
        loss[counted],
        no_loss[counted],
        norm[counted],
        no_norm[counted],
        columns["loss_scale"][0],
        skipped,
    )


def _nan(steps: _Steps) -> Trouble | None:
    bad = np.flatnonzero(~steps.no_loss & ~np.isfinite(steps.loss))
    figure, values = "loss", steps.loss
    if not len(bad):
        bad = _nan_gradients(steps)
        figure, values = "gradient norm", steps.grad_norm
    if not len(bad):
        return None
    before, after = values[: bad[0]], values[bad[-1] + 1 :]
    groups = {"figure": figure, "iteration": f"{steps.iteration[bad[0]]:.0f}"}
    good = before[np.isfinite(before)]
    if len(good):
        groups["good"] = f"{good[-1]:.4g}"
    return Trouble("F13", groups, over=bool(np.isfinite(after).any()))


def _nan_gradients(steps: _Steps) -> NDArray[np.intp]:
    """Where the gradient norm stays NaN or inf; a lone one is an overflow that the scaler dealt with."""
    bad = np.flatnonzero(~steps.no_norm & ~np.isfinite(steps.grad_norm))
    in_a_row = bool((np.diff(bad) == 1).any())
    still = bool(len(bad)) and bad[-1] == len(steps.grad_norm) - 1
    return bad if in_a_row and (still or len(bad) > REPEATS) else bad[:0]


def _zero_loss(steps: _Steps) -> Trouble | None:
    """The loss goes from a real value to exactly 0 and stays there."""
    known = np.isfinite(steps.loss)
    losses, iterations = steps.loss[known], steps.iteration[known]
    real = np.flatnonzero(losses != 0.0)
    if not len(real) or real[-1] == len(losses) - 1 or losses[real[-1]] < REAL_LOSS:
        return None
    last = int(real[-1])
    return Trouble("F17", {"good": f"{losses[last]:.4g}", "iteration": f"{iterations[last + 1]:.0f}"})


def _scale(steps: _Steps, overflows: Sequence[tuple[float, float]]) -> Trouble | None:
    """The loss scale at its floor, again and again. Placeholders (-1, 2^32, a constant 1 in bf16) never fall."""
    floor = [after for before, after in overflows[-2 * REPEATS :] if min(before, after) <= COLLAPSED_SCALE]
    if len(floor) >= REPEATS:
        return Trouble("F15", {"scale": f"{floor[-1]:g}"})
    known = np.isfinite(steps.scale) & (steps.scale > 0)
    scales, skipped = steps.scale[known], steps.skipped[known]
    last = slice(-(REPEATS + 1), None)
    if len(scales) <= REPEATS or scales.max() <= 16:
        return None
    if (scales[last] <= COLLAPSED_SCALE).all() and (skipped[last] > 0).all():
        return Trouble("F15", {"scale": f"{scales[-1]:g}"})
    return None


def _spike(steps: _Steps) -> Trouble | None:
    """An upward jump of the loss (or an enormous one of the gradient norm), and whether it came down."""
    for figure, values, ratio in (
        ("loss", steps.loss, SPIKE_RATIO),
        ("gradient norm", steps.grad_norm, GRADIENT_RATIO),
    ):
        known = np.isfinite(values)
        at = _jumps(values[known], ratio)
        if at:
            return _spike_at(figure, values[known], steps.iteration[known], at[0])
    return None


def _climb(steps: _Steps) -> Trouble | None:
    """The loss rises slowly, without a jump, to far above its best and goes on rising."""
    known = np.isfinite(steps.loss)
    losses, iterations = steps.loss[known], steps.iteration[known]
    if len(losses) < HISTORY + 2 * CLIMB_WINDOW:
        return None
    smooth = np.median(sliding_window_view(losses, CLIMB_WINDOW), axis=1)
    best = int(np.argmin(smooth[: -2 * CLIMB_WINDOW]))
    level, before, now = float(smooth[best]), float(smooth[-1 - CLIMB_WINDOW]), float(smooth[-1])
    high = losses[-2 * CLIMB_WINDOW :].min() > (1.0 + CLIMB_RATIO) / 2 * level
    if level < CLIMB_LEVEL or now < CLIMB_RATIO * level or now < before or not high:
        return None
    groups = {
        "figure": "loss",
        "good": f"{level:.4g}",
        "peak": f"{now:.4g}",
        "iteration": f"{iterations[best]:.0f}",
        "outcome": " and still rises",
        "how": "climbed bit by bit",
        "when": "since",
    }
    return Trouble("F18", groups)


def _spike_at(figure: str, values: Floats, iterations: Floats, first: int) -> Trouble:
    level = float(np.median(values[max(0, first - HISTORY) : first]))
    recovered = bool(values[-1] <= RECOVERED_WITHIN * level)
    groups = {
        "figure": figure,
        "good": f"{level:.4g}",
        "peak": f"{values[first:].max():.4g}",
        "iteration": f"{iterations[first]:.0f}",
        "outcome": " and came down again" if recovered else " and has not come down",
        "how": "jumped",
        "when": "at",
    }
    return Trouble("F18", groups, over=recovered)


def _jumps(values: Floats, ratio: float) -> list[int]:
    """Where a value is over `ratio` times the level before it, and far outside its scatter."""
    if len(values) < 3:
        return []
    # What cannot be a jump goes first, for all values at once: those that are not far above the worst before them.
    padded = np.concatenate((np.full(HISTORY, -np.inf), values))
    worst = sliding_window_view(padded, HISTORY)[:-1].max(axis=1)
    for index in np.flatnonzero(values > SPIKE_OVER_WORST * worst).tolist():
        before = values[max(0, index - HISTORY) : index]
        if len(before) < 2:
            continue
        level = float(np.median(before))
        scatter = 1.4826 * float(np.median(np.abs(before - level)))
        if level > 0 and values[index] > max(ratio * level, level + SPIKE_SPREAD * scatter):
            return [index]
    return []
