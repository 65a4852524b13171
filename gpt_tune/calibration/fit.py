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

# Residuals smaller than this (relative) are noise between repeats, and are not worth moving a constant for.
NOISE_FLOOR = 0.01
_ITERATIONS = 40
_DAMPING = 1e-2
_TRIALS = 8
# Natural-log units: the step of a numerical derivative, and the furthest one iteration may move a constant.
_DERIVATIVE_STEP = 1e-3
_LONGEST_MOVE = 0.5


@dataclass(frozen=True, slots=True)
class Free:
    """A constant the fit may move: its prior value, how far (in natural-log units) it may plausibly be off,
    and hard limits."""

    name: str
    prior: float
    spread: float
    low: float
    high: float


def fit(
    residuals: Residuals,
    free: Sequence[Free],
    weights: Floats | None = None,
    start: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Constants that minimise the robust log error of the runs plus the squared pull of the priors.

    Levenberg-Marquardt on reweighted least squares. Large residuals count by their logarithm: measured tables
    hold rows that a failing link or a full allocator made twice as slow, and no constant should follow those.
    """
    problem = _Problem(residuals, free, weights)
    theta = problem.start(start or {})
    r = problem.residuals(theta)
    damping = _DAMPING
    jacobian = problem.jacobian(theta, r)
    for iteration in range(_ITERATIONS):
        fresh = iteration % 2 == 0
        if fresh and iteration > 0:
            # One derivative serves two iterations: it changes slowly, and costs a prediction a constant.
            jacobian = problem.jacobian(theta, r)
        found = problem.better(theta, r, jacobian, damping)
        if found is None:
            if fresh:
                break
            continue
        gain, theta, r, damping = found
        if gain < 1e-4:
            break
    return problem.named(theta)


class _Problem:
    """The constants as logarithms, their priors, and the loss."""

    def __init__(self, residuals: Residuals, free: Sequence[Free], weights: Floats | None) -> None:
        self._residuals, self._names = residuals, [f.name for f in free]
        self._prior = np.array([math.log(f.prior) for f in free])
        self._spread = np.array([f.spread for f in free])
        self._low = np.array([math.log(f.low) for f in free])
        self._high = np.array([math.log(f.high) for f in free])
        self._weights = weights

    def start(self, known: Mapping[str, float]) -> Floats:
        begin = [math.log(known[n]) if n in known else x for n, x in zip(self._names, self._prior)]
        clipped: Floats = np.clip(np.array(begin), self._low, self._high)
        return clipped

    def named(self, theta: Floats) -> dict[str, float]:
        return {name: math.exp(x) for name, x in zip(self._names, theta)}

    def residuals(self, theta: Floats) -> Floats:
        return self._residuals(self.named(theta))

    def jacobian(self, theta: Floats, r: Floats) -> Floats:
        columns = []
        for i in range(len(theta)):
            step = _DERIVATIVE_STEP if theta[i] + _DERIVATIVE_STEP <= self._high[i] else -_DERIVATIVE_STEP
            moved = theta.copy()
            moved[i] += step
            columns.append((self.residuals(moved) - r) / step)
        return np.stack(columns, axis=1)

    def better(
        self, theta: Floats, r: Floats, jacobian: Floats, damping: float
    ) -> tuple[float, Floats, Floats, float] | None:
        """A step that lowers the loss: relative gain, constants, residuals and damping there; None if there is none."""
        scale = _scale(r)
        weight = self._weight(r) / (scale**2 + r**2)
        normal = jacobian.T @ (weight[:, None] * jacobian) + np.diag(1.0 / self._spread**2)
        pull = jacobian.T @ (weight * r) + (theta - self._prior) / self._spread**2
        loss = self._loss(theta, r, scale)
        for _ in range(_TRIALS):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -pull)
            moved = np.clip(theta + np.clip(step, -_LONGEST_MOVE, _LONGEST_MOVE), self._low, self._high)
            r_moved = self.residuals(moved)
            gain = loss - self._loss(moved, r_moved, scale)
            if gain > 0:
                return gain / max(loss, 1.0), moved, r_moved, max(damping / 4.0, 1e-6)
            damping *= 4.0
        return None

    def _weight(self, r: Floats) -> Floats:
        return np.ones_like(r) if self._weights is None else self._weights

    def _loss(self, theta: Floats, r: Floats, scale: float) -> float:
        misfit = np.sum(self._weight(r) * np.log1p((r / scale) ** 2))
        return float(misfit + np.sum(((theta - self._prior) / self._spread) ** 2))


def _scale(r: Floats) -> float:
    """Size of an ordinary residual: outliers are those several times larger."""
    return float(max(1.5 * np.median(np.abs(r)), NOISE_FLOOR))
