"""Owns fitting constants to measured runs: robust, and held near their priors where the runs say nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Constants -> log(predicted / measured), one figure a run.
Residuals = Callable[[Mapping[str, float]], Floats]


@dataclass(frozen=True, slots=True)
class Free:
    """A constant the fit may move: its prior value, how far (in natural-log units) it may plausibly be off,
    and hard limits."""

    name: str
    prior: float
    spread: float
    low: float
    high: float


# Residuals smaller than this (relative) are noise between repeats, and are not worth moving a constant for.
NOISE_FLOOR = 0.01
_ITERATIONS = 40
_STEP = 1e-3


def fit(
    residuals: Residuals,
    free: Sequence[Free],
    weights: Floats | None = None,
    start: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Constants that minimise the absolute log error of the runs plus the squared pull of the priors.

    Levenberg-Marquardt on reweighted least squares. Large residuals count by their logarithm: measured tables
    hold rows that a failing link or a full allocator made twice as slow, and no constant should follow those.
    """
    prior = np.array([math.log(f.prior) for f in free])
    spread = np.array([f.spread for f in free])
    low = np.array([math.log(f.low) for f in free])
    high = np.array([math.log(f.high) for f in free])

    def at(theta: Floats) -> Floats:
        return residuals({f.name: math.exp(x) for f, x in zip(free, theta)})

    begin = np.array([math.log((start or {}).get(f.name, f.prior)) for f in free])
    theta = np.clip(begin, low, high)
    r = at(theta)
    run_weight = np.ones_like(r) if weights is None else weights
    scale = _scale(r)
    damping = 1e-2
    loss = _loss(r, run_weight, scale, theta, prior, spread)
    jacobian = _jacobian(at, theta, r, low, high)
    for iteration in range(_ITERATIONS):
        w = run_weight / (scale**2 + r**2)
        if iteration % 2 == 0 and iteration > 0:
            # One derivative serves two steps: it changes slowly, and costs a prediction a constant.
            jacobian = _jacobian(at, theta, r, low, high)
        normal = jacobian.T @ (w[:, None] * jacobian) + np.diag(1.0 / spread**2)
        pull = jacobian.T @ (w * r) + (theta - prior) / spread**2
        improved = False
        for _ in range(8):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -pull)
            candidate = np.clip(theta + np.clip(step, -0.5, 0.5), low, high)
            r_new = at(candidate)
            loss_new = _loss(r_new, run_weight, scale, candidate, prior, spread)
            if loss_new < loss:
                improved = True
                break
            damping *= 4.0
        if not improved and iteration % 2 == 0:
            break
        if not improved:
            damping = 1e-2
            continue
        gain = loss - loss_new
        theta, r, damping = candidate, r_new, max(damping / 4.0, 1e-6)
        scale = _scale(r)
        loss = _loss(r, run_weight, scale, theta, prior, spread)
        if gain < 1e-4 * max(loss, 1.0):
            break
    return {f.name: math.exp(x) for f, x in zip(free, theta)}


def _scale(r: Floats) -> float:
    """Size of an ordinary residual: outliers are those several times larger."""
    return float(max(1.5 * np.median(np.abs(r)), NOISE_FLOOR))


def _loss(r: Floats, weight: Floats, scale: float, theta: Floats, prior: Floats, spread: Floats) -> float:
    misfit = np.sum(weight * np.log1p((r / scale) ** 2))
    return float(misfit + np.sum(((theta - prior) / spread) ** 2))


def _jacobian(at: Callable[[Floats], Floats], theta: Floats, r: Floats, low: Floats, high: Floats) -> Floats:
    columns = []
    for i in range(len(theta)):
        step = _STEP if theta[i] + _STEP <= high[i] else -_STEP
        moved = theta.copy()
        moved[i] += step
        columns.append((at(moved) - r) / step)
    return np.stack(columns, axis=1)
