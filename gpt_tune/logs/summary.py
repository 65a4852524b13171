"""Owns the figures that sum up a run: what counts as warm-up, and medians of the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt_tune.logs.columns import Floats
from gpt_tune.logs.table import StepTable

WARMUP_STEPS = 5  # of each run segment: JIT, autotuning, allocator growth
FEW_STEPS = 10  # a segment with fewer gives up half of them at most


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of the steps after warm-up; losses of the first and last step that printed one."""

    steps: int = 0
    warmup_steps: int = 0
    median_step_time_ms: float | None = None
    mean_step_time_ms: float | None = None
    stdev_step_time_ms: float | None = None
    median_model_tflops: float | None = None
    first_loss: float | None = None
    last_loss: float | None = None
    median_tokens_per_second_per_gpu: float | None = None
    median_logged_tflops: float | None = None


def warmup_count(steps: int) -> int:
    """How many first steps of a segment are warm-up."""
    return WARMUP_STEPS if steps >= FEW_STEPS else steps // 2


def steady(segments: Floats) -> NDArray[np.bool_]:
    """Which of the steps (given by their segment, in order) are past warm-up."""
    keep = np.ones(len(segments), dtype=bool)
    for start, stop in runs_of(segments):
        keep[start : start + warmup_count(stop - start)] = False
    return keep


def runs_of(segments: Floats) -> list[tuple[int, int]]:
    """[start, stop) of each stretch of equal values."""
    if not len(segments):
        return []
    edges = (np.flatnonzero(np.diff(segments)) + 1).tolist()
    return list(zip([0, *edges], [*edges, len(segments)]))


def summarise(table: StepTable) -> Summary:
    """The summary of all standing steps."""
    names = ("step_time_ms", "model_tflops", "loss", "tokens_per_second_per_gpu", "logged_tflops")
    columns = table.columns(*names)
    keep = steady(columns["segment"])
    times = _finite(columns["step_time_ms"][keep])
    losses = _finite(columns["loss"])
    return Summary(
        steps=len(keep),
        warmup_steps=int((~keep).sum()),
        median_step_time_ms=_median(times),
        mean_step_time_ms=float(times.mean()) if len(times) else None,
        stdev_step_time_ms=float(times.std(ddof=1)) if len(times) > 1 else None,
        median_model_tflops=_median(_finite(columns["model_tflops"][keep])),
        first_loss=float(losses[0]) if len(losses) else None,
        last_loss=float(losses[-1]) if len(losses) else None,
        median_tokens_per_second_per_gpu=_median(_finite(columns["tokens_per_second_per_gpu"][keep])),
        median_logged_tflops=_median(_finite(columns["logged_tflops"][keep])),
    )


def _finite(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _median(values: Floats) -> float | None:
    return float(np.median(values)) if len(values) else None
