"""Owns the named constants of the memory model: default, unit, source. A calibration may override any of them."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_tune.calibration.constants import Calibration
from gpt_tune.errors import unknown_name


@dataclass(frozen=True, slots=True)
class Constant:
    """One number of the memory model that is measured rather than derived."""

    default: float
    unit: str
    meaning: str
    source: str


CONSTANTS: dict[str, Constant] = {
    "cluster_gib": Constant(
        0.0,
        "GiB",
        "added to device memory: what this cluster's image and network stack take beyond the terms below",
        "the one additive constant of a cluster, fitted by `validate --fit` or `calibrate`",
    ),
    "cuda_context_gib": Constant(
        0.61, "GiB", "bare CUDA context of one process", "H200, driver 580, torch 2.11 (measured)"
    ),
    "communicator_gib": Constant(
        0.38,
        "GiB",
        "device memory of one process group's NCCL communicator",
        "H200: outside-allocator memory differs in steps of 0.38 (measured)",
    ),
    "peer_gib": Constant(
        0.5,
        "GiB",
        "more, for each process group that really has peers",
        "H200, two GPUs against one (measured)",
    ),
}


def value(calibration: Calibration | None, name: str) -> float:
    """The constant `name`: the calibration's, else the default."""
    if name not in CONSTANTS:
        raise unknown_name("memory constant", name, CONSTANTS)
    if calibration is not None and name in calibration.memory:
        return float(calibration.memory[name])
    return CONSTANTS[name].default
