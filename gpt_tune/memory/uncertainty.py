"""Owns how far a prediction may be off: the interval and the probability of running out of memory.

Measured over predicted device memory is taken as log-normal around 1, and may be higher by what the allocator
reserves in some runs and not in others. The width is what runs of a cluster need for 90 % of them to lie inside:
0.03 with the software of the H200 runs, 0.05 where nothing is known.
"""

from __future__ import annotations

import numpy as np

from gpt_tune.calibration.constants import Calibration
from gpt_tune.hardware.parts import Node
from gpt_tune.memory.columns import Floats
from gpt_tune.memory.types import MemoryEstimate
from gpt_tune.units import KIB

# Standard deviation of log(measured / predicted) without a calibration.
DEFAULT_ERROR = 0.05
# A calibration cannot promise more than repeats of a layout at other shapes allow.
SMALLEST_ERROR = 0.02
ERROR = "error"  # its name among a calibration's memory constants
Z90 = 1.6448536269514722  # a standard normal lies within +- this with probability 90 %


def limit_gib(node: Node) -> float | None:
    """Device memory of a GPU as nvidia-smi shows it, GiB; None when unknown."""
    mib = node.gpu.memory_mib_driver
    return None if mib is None else mib / KIB


def interval(
    device: Floats, surprise: Floats, calibration: Calibration | None, trainer: str = ""
) -> tuple[Floats, Floats]:
    """Bounds that hold 90 % of runs. surprise: what the allocator may reserve beyond device, same unit."""
    factor = np.exp(Z90 * spread(calibration, trainer))
    return device / factor, (device + surprise) * factor


def surprise_of(estimate: MemoryEstimate) -> float:
    """GiB that the interval's upper end allows the allocator beyond the prediction, before it is widened."""
    device = estimate.device_gib
    return max(estimate.high_gib * estimate.low_gib / device - device, 0.0)


def oom_probability(firm: Floats, limit: float, calibration: Calibration | None, trainer: str = "") -> Floats:
    """Chance that a run fails for lack of memory.

    firm: what cannot be given back when an allocation fails, same unit as limit: allocated memory, context
    and the part of the reserved gap that stays. PyTorch frees whole cached blocks before it gives up.
    """
    z = np.log(np.maximum(firm, 1e-9) / limit) / spread(calibration, trainer)
    return _normal_cdf(z)


def spread(calibration: Calibration | None, trainer: str = "") -> float:
    """Standard deviation of log(measured / predicted): this trainer's in the calibration, else the whole file's.

    An error measured with other trainers only says nothing about this one.
    """
    if calibration is None:
        return DEFAULT_ERROR
    for key in (f"{trainer}.{ERROR}", ERROR):
        if key in calibration.memory:
            return max(calibration.memory[key], SMALLEST_ERROR)
    others = any(key.endswith(f".{ERROR}") for key in calibration.memory)
    if others or calibration.memory_error is None:
        return DEFAULT_ERROR
    return max(calibration.memory_error, SMALLEST_ERROR)


def _normal_cdf(z: Floats) -> Floats:
    """The standard normal distribution, by Abramowitz and Stegun 7.1.26 (error below 1.5e-7)."""
    x = np.abs(z) / np.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * x)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * series * np.exp(-x * x)
    return np.asarray(np.where(z > 0, 1.0 - tail, tail), dtype=np.float64)
