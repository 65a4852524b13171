"""Owns turning parts into a step-time estimate: rates, interval, and the fast path for many layouts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gpt_tune.calibration.constants import Calibration
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.models import flops
from gpt_tune.models.shape import ModelShape
from gpt_tune.timing.constants import value
from gpt_tune.timing.step import PARTS, parts, total
from gpt_tune.timing.types import StepEstimate

Floats = NDArray[np.float64]

# Steps bound by the host scatter more between repeats: an interval is this much wider, in shares of itself,
# when the whole step is host time (H200 runs below 550 W, vTrain's small models).
HOST_WIDENING = 3.0


def estimate_batch(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    batch: LayoutBatch,
    seq_length: int,
    calibration: Calibration | None = None,
) -> Floats:
    """Seconds of one step for each layout."""
    if len(batch) == 0:
        return np.zeros(0)
    return total(parts(model, node, trainer, batch, seq_length, calibration))


def estimate(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    layout: Layout,
    seq_length: int,
    calibration: Calibration | None = None,
) -> StepEstimate:
    """The step time of one layout, split into what it is spent on."""
    return estimate_many(model, node, trainer, LayoutBatch.of([layout]), seq_length, calibration)[0]


def estimate_many(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    batch: LayoutBatch,
    seq_length: int,
    calibration: Calibration | None = None,
) -> list[StepEstimate]:
    """`estimate` of each layout of a batch, at the price of one."""
    if len(batch) == 0:
        return []
    columns = parts(model, node, trainer, batch, seq_length, calibration)
    seconds = total(columns)
    width_90 = value("width_90", node.gpu, trainer, calibration)
    return [
        _one(
            model,
            node,
            batch.row(i),
            seq_length,
            float(seconds[i]),
            {name: float(columns[name][i]) for name in PARTS},
            width_90,
        )
        for i in range(len(batch))
    ]


def _one(
    model: ModelShape,
    node: Node,
    layout: Layout,
    seq_length: int,
    seconds: float,
    spent: dict[str, float],
    width_90: float,
) -> StepEstimate:
    half = math.exp(float(half_width(spent["other"] / seconds, width_90)))
    tokens = layout.global_batch_size * seq_length
    model_rate, ran_rate = _tflops(model, layout, seq_length, tokens, seconds)
    peak = (node.gpu.fp8_tflops if layout.precision == "fp8" else node.gpu.bf16_tflops) or 0.0
    return StepEstimate(
        seconds=seconds,
        low=seconds / half,
        high=seconds * half,
        **spent,
        model_tflops=model_rate,
        hardware_tflops=ran_rate,
        mfu=model_rate / peak if peak > 0 else None,
        hfu=ran_rate / peak if peak > 0 else None,
        tokens_per_second_per_gpu=tokens / seconds / layout.gpus,
    )


def half_width(host_share: Floats | float, width_90: float) -> Floats | float:
    """Half-width of the 90 % interval in natural-log units; host_share: part of the step spent on `other`."""
    return width_90 * (1.0 + HOST_WIDENING * host_share)


def _tflops(
    model: ModelShape, layout: Layout, seq_length: int, tokens: int, seconds: float
) -> tuple[float, float]:
    """Model and hardware TFLOPS per GPU."""
    recompute = layout.recompute
    share = 1.0
    if recompute.granularity == "full" and recompute.method == "block" and recompute.layers:
        share = min(1.0, recompute.layers * layout.pipeline_parallel / model.layers)
    per_gpu = seconds * layout.gpus * 1e12
    ran = flops.hardware_flops(model, seq_length, tokens, recompute.granularity, share)
    return flops.model_flops(model, seq_length, tokens) / per_gpu, ran / per_gpu
