"""Owns the shape of a memory estimate. No arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PEAK_PHASES = ("forward_backward", "reduction", "optimizer", "initialisation")


@dataclass(frozen=True, slots=True)
class StageMemory:
    """GiB on one GPU of a pipeline stage at that stage's peak.

    parameters + gradients + optimizer + activations + logits + buffers + transient = allocated;
    + reserved_gap = reserved; + context = total (device).
    """

    stage: int
    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    transient: float
    reserved_gap: float
    context: float
    total: float


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Predicted GPU memory in GiB; top-level figures are the worst stage's; low/high bound device at 90 %."""

    allocated_gib: float
    reserved_gib: float
    device_gib: float
    low_gib: float
    high_gib: float
    limit_gib: float | None
    oom_probability: float | None
    peak_phase: str  # forward_backward | reduction | optimizer | initialisation
    stages: tuple[StageMemory, ...]
    not_modelled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryBatch:
    """The top-level figures of MemoryEstimate for many layouts, GiB; every column has shape (n,).

    oom_probability is None when the GPU's memory is unknown. peak_phase indexes PEAK_PHASES.
    worst_stage is the pipeline stage the figures belong to.
    """

    allocated_gib: Floats
    reserved_gib: Floats
    device_gib: Floats
    low_gib: Floats
    high_gib: Floats
    oom_probability: Floats | None
    peak_phase: NDArray[np.int64]
    worst_stage: NDArray[np.int64]
    limit_gib: float | None = None

    def __len__(self) -> int:
        return len(self.device_gib)
