"""Owns what can be charted of a run, and against what."""

from __future__ import annotations

import numpy as np

from gpt_tune.errors import unknown_name
from gpt_tune.logs.columns import FLOATS, Floats
from gpt_tune.logs.facts import RunFacts
from gpt_tune.logs.table import StepTable

AXES = ("iteration", "hours", "tokens")
FIGURES = (*FLOATS, "mfu")


def axis_of(
    table: StepTable, facts: RunFacts, name: str, axis: str, peak_tflops: float | None = None
) -> tuple[Floats, Floats]:
    """(x, y) of one figure over all standing steps. y holds NaN where nothing was printed.

    axis: iteration | hours (of training, the sum of step times) | tokens. Raises UserError for another name.
    """
    if name not in FIGURES:
        raise unknown_name("figure", name, FIGURES)
    if axis not in AXES:
        raise unknown_name("axis", axis, AXES)
    column = "model_tflops" if name == "mfu" else name
    columns = table.columns(column, "step_time_ms", "consumed_samples")
    y = columns[column]
    if name == "mfu":
        y = y / peak_tflops if peak_tflops else np.full(len(y), np.nan)
    if axis == "hours":
        return _hours(columns["iteration"], columns["step_time_ms"]), y
    if axis == "tokens":
        return _tokens(columns["consumed_samples"], columns["iteration"], facts), y
    return columns["iteration"], y


def _tokens(samples: Floats, iterations: Floats, facts: RunFacts) -> Floats:
    """Tokens seen up to each step: from the samples printed, else from a batch that never changes."""
    length, batch = facts.seq_length, facts.global_batch_size
    if not length:
        return np.full(len(iterations), np.nan)
    if np.isfinite(samples).any() or not batch:
        return samples * length
    return iterations * float(batch * length)


def _hours(iterations: Floats, step_time_ms: Floats) -> Floats:
    """Training time up to each step: a printed time is the mean over the iterations since the line before."""
    if not len(iterations):
        return iterations
    between = np.diff(iterations, prepend=iterations[0] - 1)
    # A resumed run starts at a lower number: its first line stands for one step.
    between = np.where(between > 0, between, 1.0)
    known = np.isfinite(step_time_ms)
    typical = float(np.median(step_time_ms[known])) if known.any() else np.nan
    return np.cumsum(between * np.where(known, step_time_ms, typical)) / 3.6e6
