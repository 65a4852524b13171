"""Owns how far a prediction may be off: the interval and the probability of running out of memory."""

from __future__ import annotations

import numpy as np

from gpt_tune.calibration.constants import Calibration
from gpt_tune.memory.columns import Floats

DEFAULT_RELATIVE_ERROR = 0.08
Z90 = 1.6448536269514722  # a standard normal lies within +- this with probability 90 %


def interval(device: Floats, calibration: Calibration | None) -> tuple[Floats, Floats]:
    """Bounds that hold 90 % of runs."""
    spread = Z90 * _sigma(calibration)
    return device * np.exp(-spread), device * np.exp(spread)


def oom_probability(device: Floats, limit: float, calibration: Calibration | None) -> Floats:
    """Chance that device memory exceeds `limit`, residuals taken as log-normal."""
    z = np.log(device / limit) / _sigma(calibration)
    return _normal_cdf(z)


def _sigma(calibration: Calibration | None) -> float:
    error = calibration.memory_error if calibration is not None else None
    return max(error if error is not None else DEFAULT_RELATIVE_ERROR, 0.01)


def _normal_cdf(z: Floats) -> Floats:
    """The standard normal distribution, by Abramowitz and Stegun 7.1.26 (error below 1.5e-7)."""
    x = np.abs(z) / np.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * x)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * series * np.exp(-x * x)
    return np.asarray(np.where(z > 0, 1.0 - tail, tail), dtype=np.float64)
