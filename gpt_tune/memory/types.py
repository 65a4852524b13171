"""Owns the shape of a memory estimate. No arithmetic."""

from __future__ import annotations

from dataclasses import dataclass


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
