"""Owns memory outside PyTorch's allocator: CUDA context and communicators."""

from __future__ import annotations

import numpy as np

from gpt_tune.calibration.constants import Calibration
from gpt_tune.memory.columns import Columns, Floats
from gpt_tune.memory.constants import value
from gpt_tune.units import GIB

# Process groups whose communicator a run creates, in runs on one H200 (2.57 GiB / 0.38).
ENGINE_GROUPS = 7
PLAIN_GROUPS = 5


def outside_bytes(c: Columns, calibration: Calibration | None) -> Floats:
    """Bytes of device memory that no allocator figure shows."""
    groups = np.where(c.engine, ENGINE_GROUPS, PLAIN_GROUPS)
    real = (c.tensor_parallel > 1) * 5.0 + (c.data > 1) * 6.0 + (c.pipeline > 1) * 7.0 + (c.context > 1) * 5.0
    gib = (
        value(calibration, "cuda_context_gib")
        + groups * value(calibration, "communicator_gib")
        + np.minimum(real, 12.0) * value(calibration, "peer_gib")
        + value(calibration, "cluster_gib")
    )
    return np.asarray(gib * GIB, dtype=np.float64)
