"""Owns GPU memory: how much of it a layout needs, per pipeline stage and per cause, and how sure that is."""

from gpt_tune.memory.estimator import estimate, estimate_batch, estimate_many
from gpt_tune.memory.types import MemoryBatch, MemoryEstimate, StageMemory
from gpt_tune.memory.uncertainty import limit_gib

__all__ = [
    "MemoryBatch",
    "MemoryEstimate",
    "StageMemory",
    "estimate",
    "estimate_batch",
    "estimate_many",
    "limit_gib",
]
