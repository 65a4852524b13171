"""Owns fitting the one memory constant of a cluster to measured device memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpt_tune.errors import UserError


@dataclass(frozen=True, slots=True)
class ClusterFit:
    """cluster_gib: what to add to predictions. error: standard deviation of log(measured / predicted) then."""

    cluster_gib: float
    error: float
    rows: int


def fit_cluster(measured_gib: Sequence[float], predicted_gib: Sequence[float]) -> ClusterFit:
    """The median of measured minus predicted device memory, predictions made without `cluster_gib`.

    The median, because single published figures are off by several GiB.
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
    spread = float(np.sqrt(np.mean(np.log(measured / shifted) ** 2)))
    return ClusterFit(constant, spread, len(measured))
