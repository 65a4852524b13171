"""Owns memory outside PyTorch's allocator: CUDA context and communicators."""

from __future__ import annotations

import numpy as np

from gpt_tune.calibration.constants import Calibration
from gpt_tune.memory.columns import Columns, Floats
from gpt_tune.memory.constants import value
from gpt_tune.memory.setup import MEGATRON_DEEPSPEED, MEGATRON_LM, Setup
from gpt_tune.units import GIB

# Process groups that communicate in a run on one GPU: Megatron-DeepSpeed with and without the pipeline
# engine by what memory outside the allocator shows; the other trainers use the world's group only.
ENGINE_GROUPS = 6
PLAIN_GROUPS = 4


def outside_bytes(setup: Setup, c: Columns, calibration: Calibration | None) -> Floats:
    """Bytes of device memory that no allocator figure shows.

    NCCL keeps buffers for every process group that has communicated. Groups with peers: the world; data
    parallel (two in the pipeline engine, which also reduces over sequence-data ranks); tensor; tensor times
    pipeline, for norms and overflow; pipeline; context parallel with its data-parallel twin.
    """
    t, p = c.tensor_parallel > 1, c.pipeline > 1
    megatron = setup.trainer.name in (MEGATRON_DEEPSPEED, MEGATRON_LM)
    alone = ~(t | p | (c.data > 1) | (c.context > 1))
    peers = (
        (~alone).astype(np.int64)
        + (c.data > 1) * (np.where(c.engine, 2, 1) if megatron else 0)
        + t * 1
        + (t | p) * (1 if setup.deepspeed else 0)
        + p * 1
        + (c.context > 1) * 2
        + (c.expert_parallel > 1) * 2
    )
    groups = np.where(c.engine, ENGINE_GROUPS, PLAIN_GROUPS) if megatron and setup.deepspeed else 1
    idle = np.maximum(groups - peers, 0)
    name = setup.trainer.name
    gib = (
        value(calibration, "context_gib", name)
        + idle * value(calibration, "idle_communicator_gib", name)
        + peers * value(calibration, "communicator_gib", name)
        + value(calibration, "cluster_gib", name)
    )
    return np.asarray(np.maximum(gib, 0.0) * GIB, dtype=np.float64)
