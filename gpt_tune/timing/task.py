"""Owns what all parts of a step's time are computed from, and the sum that one and many layouts agree on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Trainer
from gpt_tune.models.shape import ModelShape
from gpt_tune.timing.constants import Constants

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Trainers whose optimizer and collectives are DeepSpeed's.
DEEPSPEED = ("megatron-deepspeed", "deepspeed")


@dataclass(frozen=True, slots=True)
class Task:
    """A model on layouts, under one trainer, on one kind of node. seq_length has a row per layout.

    domain: GPUs that share the fast link.
    """

    model: ModelShape
    trainer: Trainer
    batch: LayoutBatch
    seq_length: Ints
    domain: int
    constants: Constants

    @property
    def deepspeed(self) -> bool:
        return self.trainer.name in DEEPSPEED

    @property
    def replicas(self) -> Ints:
        """Ranks that hold the same weights and sum their gradients."""
        return self.batch.data_parallel * self.batch.context_parallel


def add(arrays: Iterable[Floats]) -> Floats:
    """Added one after another: NumPy's own sum orders terms by shape, and one and many must agree to the bit."""
    return reduce(np.add, arrays)
