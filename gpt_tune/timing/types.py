"""Owns the shape of a step-time estimate. No arithmetic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """Predicted step time in seconds. The ten parts are exposed time on the critical path and sum to it."""

    seconds: float
    low: float
    high: float
    compute: float
    tensor_parallel: float
    context_parallel: float
    expert_parallel: float
    pipeline_bubble: float
    pipeline_p2p: float
    data_parallel: float
    optimizer: float
    other: float
    model_tflops: float
    hardware_tflops: float
    mfu: float | None
    hfu: float | None
    tokens_per_second_per_gpu: float
