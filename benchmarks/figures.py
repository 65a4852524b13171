"""Owns how the accuracy benchmark states a figure: rows, statistic, bootstrap interval, worst, goal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], "np.floating | float"]
RESAMPLES = 2000
WIDTH = 66
_TITLES = f"{'rows':>5} {'figure':>8} {'95 % interval':>17} {'median':>7} {'worst':>7} {'in 90 %':>8}  goal"
HEADER = f"{'':<{WIDTH}} {_TITLES}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line: errors (fractions) of rows, what is stated of them, and the goal for that.

    covered: which rows lay in their 90 % interval, where that was judged.
    """

    words: str
    errors: Floats
    goal: float | None = None
    statistic: Statistic = np.mean
    covered: Floats | None = None

    def line(self) -> str:
        n = len(self.errors)
        if not n:
            return f"{self.words:<{WIDTH}} {0:>5}"
        stated = float(self.statistic(self.errors))
        low, high = bootstrap(self.errors, self.statistic)
        inside = "" if self.covered is None else f"{np.mean(self.covered):.1%}"
        verdict = ""
        if self.goal is not None:
            verdict = f"{self.goal:.1%} {'met' if stated <= self.goal else 'MISSED'}"
        return (
            f"{self.words:<{WIDTH}} {n:>5} {stated:>8.2%} {low:>8.1%} - {high:<6.1%} "
            f"{np.median(self.errors):>7.1%} {np.max(self.errors):>7.1%} {inside:>8}  {verdict}".rstrip()
        )


def bootstrap(errors: Floats, statistic: Statistic = np.mean) -> tuple[float, float]:
    """95 % interval of the statistic, by resampling rows."""
    chosen = np.random.default_rng(0).integers(0, len(errors), (RESAMPLES, len(errors)))
    low, high = np.quantile([float(statistic(errors[rows])) for rows in chosen], [0.025, 0.975])
    return float(low), float(high)
