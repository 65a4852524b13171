"""Owns fitting step-time constants to runs without looking at the model that is judged.

Runs are grouped by what one calibration covers: a cluster, or a GPU type with one trainer. Inside a group, the
runs of one model are predicted with constants fitted to the others. What counts as one model: hidden size, MLP
width and vocabulary; where a group has only one such, its depths.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt_tune.calibration import Calibration
from gpt_tune.timing.constants import DEFAULTS
from gpt_tune.timing.estimate import half_width
from gpt_tune.timing.fitting import Measured, Predictor, fit_constants
from gpt_tune.workflows.runs_csv import Run

Floats = NDArray[np.float64]

# Host-bound runs differ by 15-50 % between repeats, so they count less.
HOST_BOUND_WEIGHT = 0.25
# An interval from fewer residuals than this is not narrower than the one below.
FEW_RUNS = 10
WIDTH_OF_FEW = 0.15


@dataclass(frozen=True, slots=True)
class Fitted:
    """Constants of one group, and what they were fitted to."""

    constants: Mapping[str, float]
    rows: int


@dataclass(frozen=True, slots=True)
class Held:
    """One run predicted by a fit that never saw its model. fitted_rows is 0 where there was nothing to fit."""

    seconds: float
    host_share: float
    width_90: float
    fitted_rows: int

    @property
    def half_width(self) -> float:
        return float(half_width(self.host_share, self.width_90))


def group_of(run: Run) -> str:
    """What one calibration covers: the cluster where the series names it, else GPU type and trainer."""
    if run.trainer.version == "bigscience":
        return "jean-zay"
    cluster = re.fullmatch(r"(.+)-h\d+", run.series)
    if cluster:
        return cluster[1]
    variant = f"@{run.trainer.version}" if run.trainer.version else ""
    return f"{run.node.gpu.id}/{run.trainer.name}{variant}"


def model_of(run: Run) -> tuple[int, ...]:
    """What makes two runs of the same model, depth aside."""
    return (run.model.hidden, run.model.ffn, run.model.vocab)


def facts_of(group: str) -> dict[str, float]:
    """What is known of a group's software and not fitted: kernels were fused by TorchScript until 2023."""
    return {"fused_pointwise": 1.0} if group == "jean-zay" or group.startswith("vtrain") else {}


def measured(run: Run) -> Measured:
    """The run as the fit wants it; seconds must be stated."""
    if run.step_seconds is None:
        raise ValueError(f"{run.id} has no step time")
    weight = HOST_BOUND_WEIGHT if run.host_bound else 1.0
    return Measured(run.model, run.node, run.trainer, run.layout, run.seq_length, run.step_seconds, weight)


def fit_group(runs: Sequence[Run], group: str) -> Fitted:
    """Constants of one group from all its timed runs."""
    timed = [run for run in runs if run.step_seconds]
    facts = facts_of(group)
    return Fitted({**facts, **fit_constants([measured(r) for r in timed], facts)}, len(timed))


def predict_held_out(targets: Sequence[Run], known: Sequence[Run], group: str) -> list[Held]:
    """Predictions for runs of one group, each by constants fitted to the known runs of other models.

    The interval's width comes from how far off the other models were when they were left out in turn.
    """
    timed = [run for run in known if run.step_seconds]
    keys = _keys([*targets, *timed])
    target_keys, known_keys = keys[: len(targets)], keys[len(targets) :]
    facts = facts_of(group)
    off: dict[tuple[int, ...], Floats] = {}
    constants: dict[tuple[int, ...], Fitted] = {}
    for key in sorted(set(keys)):
        others = [measured(r) for r, k in zip(timed, known_keys) if k != key]
        constants[key] = Fitted({**facts, **fit_constants(others, facts)}, len(others))
        mine = [measured(r) for r, k in zip(timed, known_keys) if k == key]
        if mine and others:
            off[key] = _scaled_errors(mine, constants[key].constants)
    held: dict[int, Held] = {}
    for key in set(target_keys):
        rows = [i for i, k in enumerate(target_keys) if k == key]
        seconds, host = _predict([measured(targets[i]) for i in rows], constants[key].constants)
        width = width_90(np.concatenate([e for k, e in off.items() if k != key] or [np.zeros(0)]))
        for i, predicted, share in zip(rows, seconds, host):
            held[i] = Held(float(predicted), float(share), width, constants[key].rows)
    return [held[i] for i in range(len(targets))]


def width_90(errors: Floats) -> float:
    """The interval's width constant that holds 90 % of new runs, from errors of runs predicted blindly."""
    n = len(errors)
    if n == 0:
        return DEFAULTS["width_90"]
    rank = min(n, math.ceil((n + 1) * 0.9))
    width = float(np.sort(errors)[rank - 1])
    return max(width, WIDTH_OF_FEW) if n < FEW_RUNS else width


def scaled_error(run: Run, held: Held) -> float:
    """Absolute log error, divided by what host time widens the interval."""
    seconds = run.step_seconds or math.nan
    return abs(math.log(held.seconds / seconds)) / float(half_width(held.host_share, 1.0))


def _keys(runs: Sequence[Run]) -> list[tuple[int, ...]]:
    models = [model_of(run) for run in runs]
    return models if len(set(models)) > 1 else [(run.model.layers,) for run in runs]


def _predict(runs: Sequence[Measured], constants: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Seconds, and the share of them that is host time."""
    return Predictor(runs).seconds_and_host(Calibration(timing=constants))


def _scaled_errors(runs: Sequence[Measured], constants: Mapping[str, float]) -> Floats:
    seconds, host = _predict(runs, constants)
    off = np.abs(np.log(seconds / np.array([run.seconds for run in runs])))
    return np.asarray(off / half_width(host, 1.0))
