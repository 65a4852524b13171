"""Owns what PyTorch's caching allocator reserves beyond what is allocated at the peak."""

from __future__ import annotations

import numpy as np

from gpt_tune.calibration.constants import Calibration
from gpt_tune.memory.columns import Columns, Floats
from gpt_tune.memory.constants import value
from gpt_tune.memory.phases import Peaks
from gpt_tune.memory.setup import Setup


def reserved_bytes(
    setup: Setup,
    c: Columns,
    top: Peaks,
    allocated: Floats,
    training: Floats,
    calibration: Calibration | None,
) -> Floats:
    """Reserved bytes; training is what is allocated at the top of forward and backward.

    The first step runs without Adam's states. They and the optimizer's fp32 gradients are then asked for in
    single blocks, which no cached activation block can serve: the two peaks add up though they are never
    there together.
    """
    name = setup.trainer.name
    s = top.states
    first_step = training - s.moments + s.contiguous
    gap = (
        value(calibration, "layer_gap", name) * top.layer.saved
        + value(calibration, "waiting_gap", name) * top.waiting
        + value(calibration, "logits_gap", name) * top.ends.single
    )
    if not setup.adam_at_start:
        # The dry step of older DeepSpeed has left a block for its fp32 gradients: no run of one data-parallel rank
        # that is known (18B on eight A100, 54 GB) has room for another.
        gap = gap + value(calibration, "step_gap", name) * s.step
    if setup.records_streams:
        held = value(calibration, "held_copies", name) * top.layer.input
        gap = gap + np.where(c.tensor_parallel > 1, held, 0.0)
    reserved = np.maximum(np.maximum(first_step, allocated) + gap, s.reserved_at_start)
    if setup.trainer.expandable_segments:
        reserved = allocated + value(calibration, "expandable_gap", name) * (reserved - allocated)
    return np.asarray(reserved, dtype=np.float64)


def surprise_bytes(setup: Setup, top: Peaks, calibration: Calibration | None) -> Floats:
    """What may be reserved on top: second blocks for the step's fp32 gradients and their like.

    The first step's block is cached when the second step's activations come; where they take a piece of it, the
    gradients need a block of their own. Of 76 H200 runs about a third did, at times one of two alike.
    """
    s = top.states
    expected = 0.0 if setup.adam_at_start else value(calibration, "step_gap", setup.trainer.name) * s.step
    return np.asarray(np.maximum(s.second_block - expected, 0.0), dtype=np.float64)
