"""Owns what a run's figures come to: speed, MFU, time left, GPU-hours, and how they compare with the prediction."""

from __future__ import annotations

import calendar
import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpt_tune.logs.parser import LogParser
from gpt_tune.logs.summary import WARMUP_STEPS, Summary
from gpt_tune.logs.types import Step
from gpt_tune.schedulers.base import ENDED, JobStatus

RECENT_STEPS = 50


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the plan said, None where it did not. Times in ms, low and high bound them at 90 %."""

    step_time_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    model_tflops: float | None = None
    mfu: float | None = None
    device_gib: float | None = None
    reserved_gib: float | None = None
    tokens_per_second_per_gpu: float | None = None

    @classmethod
    def from_plan(cls, plan: Mapping[str, Any]) -> Prediction:
        """From the JSON of a plan (`PLAN` of the contract), or of its `step` and `memory` alone."""
        step = plan.get("step") or {}
        memory = plan.get("memory") or {}
        seconds = {k: step.get(k) for k in ("seconds", "low", "high")}
        ms = {k: 1000.0 * v if isinstance(v, (int, float)) else None for k, v in seconds.items()}
        return cls(
            ms["seconds"],
            ms["low"],
            ms["high"],
            step.get("model_tflops"),
            step.get("mfu"),
            memory.get("device_gib"),
            memory.get("reserved_gib"),
            step.get("tokens_per_second_per_gpu"),
        )


@dataclass(frozen=True, slots=True)
class Pace:
    """How the run is doing. recent: medians over the newest steps. Shares are fractions (0.224).

    slower_than_predicted: recent step time over the predicted one, minus 1. elapsed: since the job started,
    or of the steps read when the start is unknown. gpu_hours: of all attempts of a requeued job, unless
    gpu_hours_of_last_attempt.
    """

    iteration: int | None = None
    total_iterations: int | None = None
    recent_step_time_ms: float | None = None
    recent_model_tflops: float | None = None
    mfu: float | None = None
    peak_tflops: float | None = None
    eta_seconds: float | None = None
    elapsed_seconds: float | None = None
    gpu_hours: float | None = None
    gpu_hours_total: float | None = None
    gpus: int | None = None
    slower_than_predicted: float | None = None
    max_reserved_gib: float | None = None
    max_allocated_gib: float | None = None
    gpu_hours_of_last_attempt: bool = False

    @property
    def gpu_hours_note(self) -> str:
        """What the GPU-hours leave out, in words to put behind them."""
        return " in the last attempt" if self.gpu_hours_of_last_attempt else ""


@dataclass(frozen=True, slots=True)
class Recent:
    """What the newest steps and memory reports come to; made anew only when something new was read."""

    last: Step | None
    total_iterations: int | None
    step_time_ms: float | None
    model_tflops: float | None
    max_reserved_gib: float | None
    max_allocated_gib: float | None


def recent_of(parser: LogParser) -> Recent:
    """The figures of the newest steps."""
    steps = parser.best.recent(RECENT_STEPS)
    last = steps[-1] if steps else None
    total = last.total_iterations if last is not None else None
    memory = parser.memory
    return Recent(
        replace(last) if last is not None else None,
        total or parser.facts.total_iterations,
        _recent_median(steps, "step_time_ms"),
        _recent_median(steps, "model_tflops"),
        _largest([m.max_reserved_gib or m.reserved_gib for m in memory]),
        _largest([m.max_allocated_gib or m.allocated_gib for m in memory]),
    )


def pace_of(
    recent: Recent,
    summary: Summary,
    status: JobStatus | None,
    peak_tflops: float | None,
    gpus: int | None,
    prediction: Prediction | None,
    now: float,
) -> Pace:
    """The pace from what has been read and what the scheduler says."""
    step_ms = recent.step_time_ms or summary.median_step_time_ms
    tflops = recent.model_tflops or summary.median_model_tflops
    gpus = gpus if gpus is not None or status is None else status.gpus
    elapsed = _elapsed(status, now)
    earlier = status.earlier_seconds if status is not None else None
    used = (elapsed or 0.0) + earlier if earlier else elapsed
    eta = None
    if recent.last is not None and recent.total_iterations is not None and step_ms is not None:
        eta = max(0, recent.total_iterations - recent.last.iteration) * step_ms / 1000.0
    if status is not None and status.state in ENDED:
        eta = None
    return Pace(
        iteration=recent.last.iteration if recent.last is not None else None,
        total_iterations=recent.total_iterations,
        recent_step_time_ms=step_ms,
        recent_model_tflops=tflops,
        mfu=tflops / peak_tflops if tflops is not None and peak_tflops else None,
        peak_tflops=peak_tflops,
        eta_seconds=eta,
        elapsed_seconds=elapsed,
        gpu_hours=_gpu_hours(used, gpus),
        gpu_hours_total=_gpu_hours(used + eta, gpus) if used is not None and eta is not None else None,
        gpus=gpus,
        slower_than_predicted=_slower(step_ms, prediction),
        max_reserved_gib=recent.max_reserved_gib,
        max_allocated_gib=recent.max_allocated_gib,
        gpu_hours_of_last_attempt=status is not None and status.earlier_seconds is None,
    )


def _recent_median(steps: list[Step], name: str) -> float | None:
    """Over the newest steps, the first few of a short list left out as warm-up."""
    counted = steps[min(WARMUP_STEPS, len(steps) // 2) :]
    values = [v for step in counted if (v := getattr(step, name)) is not None and math.isfinite(v)]
    return statistics.median(values) if values else None


def _elapsed(status: JobStatus | None, now: float) -> float | None:
    if status is None or status.started_at is None:
        return None
    start = epoch(status.started_at)
    end = epoch(status.ended_at) if status.ended_at else None
    return None if start is None else max(0.0, (end if end is not None else now) - start)


def epoch(stamp: str) -> float | None:
    """RFC 3339 UTC (`2026-11-30T07:15:33Z`) as seconds since 1970; None when it is something else."""
    try:
        return float(calendar.timegm(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None


def _gpu_hours(seconds: float | None, gpus: int | None) -> float | None:
    return None if seconds is None or not gpus else seconds * gpus / 3600.0


def _slower(step_ms: float | None, prediction: Prediction | None) -> float | None:
    if step_ms is None or prediction is None or not prediction.step_time_ms:
        return None
    return step_ms / prediction.step_time_ms - 1.0


def _largest(values: list[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)
