"""Owns the time of single kernels on the GPU: matrix products, attention, memory-bound operations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpt_tune.timing.constants import Constants

Floats = NDArray[np.float64]


def product(m: Floats, k: Floats, n: Floats, speed: Floats, constants: Constants) -> Floats:
    """Seconds of C[m,n] = A[m,k] B[k,n]. speed: 1 for 16-bit, above for fp8, below for fp32.

    FLOPs over the large-product rate, slower for a short inner dimension, plus a fixed time for ramp and
    tail. On the H200's 1,150 measured products of layer shapes this is 3.2 % off in the median.
    """
    flops = 2.0 * (m * n + constants.tail_outputs) * (k + constants.short_inner)
    result: Floats = flops / (constants.gemm_rate * speed) + constants.gemm_fixed
    return result


def batched_product(batch: Floats, s: Floats, d: Floats, constants: Constants) -> Floats:
    """Seconds of the scores (or context) product of unfused attention: `batch` products s x d x s.

    The s x s side is written (or read) once, which bounds it at small head sizes; a head size is padded to
    whole tensor-core tiles of 8.
    """
    padded = np.ceil(d / 8.0) * 8.0
    flops = 2.0 * batch * s * s * padded / constants.gemm_rate
    traffic = 2.0 * batch * (s * s + 2.0 * s * d) / constants.memory_rate
    result: Floats = np.maximum(flops, traffic) + constants.gemm_fixed
    return result


def moved(n_bytes: Floats, constants: Constants) -> Floats:
    """Seconds of memory-bound work that reads and writes n_bytes."""
    result: Floats = n_bytes / constants.memory_rate
    return result
