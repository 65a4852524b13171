"""Owns fitting the one memory constant of a cluster to measured device memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpt_tune.errors import UserError
from gpt_tune.memory.columns import Floats
from gpt_tune.memory.uncertainty import DEFAULT_ERROR, Z90

FEW_RUNS = 10


@dataclass(frozen=True, slots=True)
class ClusterFit:
    """cluster_gib: what to add to predictions. error: the spread with which 90 % of the runs lie in the interval."""

    cluster_gib: float
    error: float
    rows: int


def fit_cluster(
    measured_gib: Sequence[float], predicted_gib: Sequence[float], surprise_gib: Sequence[float] | None = None
) -> ClusterFit:
    """The median of measured minus predicted device memory, predictions made without `cluster_gib`.

    The median, because single published figures are off by several GiB. surprise_gib: how far the allocator may
    go beyond each prediction (the interval holds that besides the error).
    """
    measured, predicted = np.asarray(measured_gib, np.float64), np.asarray(predicted_gib, np.float64)
    if len(measured) == 0 or len(measured) != len(predicted):
        raise UserError(
            f"A memory fit needs as many predictions as measurements: {len(predicted)} and {len(measured)}.",
            "Give runs that state device memory.",
        )
    if not (np.all(np.isfinite(measured)) and np.all(measured > 0)):
        raise UserError("A measured memory figure is not a number above 0.", "Leave out such runs.")
    constant = float(np.median(measured - predicted))
    # Half of a figure is the least a shifted prediction may be, so that the logarithm exists.
    shifted = np.maximum(predicted + constant, 0.5 * predicted)
    surprise = np.zeros_like(shifted) if surprise_gib is None else np.asarray(surprise_gib, np.float64)
    return ClusterFit(constant, error_of(measured, shifted, surprise), len(measured))


def error_of(measured: Floats, predicted: Floats, surprise: Floats, weights: Floats | None = None) -> float:
    """The spread with which nine in ten of the runs lie between predicted and predicted + surprise, widened.

    Few runs promise no more than is known without them. weights: how much each run counts, all the same if None.
    """
    outside = np.maximum(np.log(measured / (predicted + surprise)), np.log(predicted / measured))
    needed = np.maximum(outside, 0.0)
    order = np.argsort(needed)
    shares = np.ones(len(needed)) if weights is None else weights[order]
    reached = np.cumsum(shares) / shares.sum()
    wanted = min(1.0, 0.9 * (1.0 + 1.0 / len(needed)))
    place = min(int(np.searchsorted(reached, wanted - 1e-9)), len(needed) - 1)
    spread = float(needed[order][place]) / Z90
    return max(spread, DEFAULT_ERROR) if len(needed) < FEW_RUNS else spread
