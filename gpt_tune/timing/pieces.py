"""Owns the exposed time of the pieces a pipeline stage is made of, for one micro-batch of each layout."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpt_tune.layouts.batch import CONTEXT_METHODS, GRANULARITIES, PRECISIONS
from gpt_tune.timing.distinct import distinct
from gpt_tune.timing.layer import LayerTimer, Micro, Pass
from gpt_tune.timing.task import Floats, Ints, Task, add

_SELECTIVE = GRANULARITIES.index("selective")
_ULYSSES = CONTEXT_METHODS.index("ulysses")
_FP8 = PRECISIONS.index("fp8")
_FP32 = PRECISIONS.index("fp32")
# Tensor cores run fp32 (TF32) at half the 16-bit rate.
_FP32_SPEED = 0.5

KINDS = ("compute", "tensor", "context", "expert", "other")


@dataclass(frozen=True, slots=True)
class Cost:
    """Exposed seconds of one micro-batch on one piece, by kind. other: waiting for the host."""

    compute: Floats
    tensor: Floats
    context: Floats
    expert: Floats
    other: Floats

    @property
    def total(self) -> Floats:
        return self.compute + self.tensor + self.context + self.expert + self.other


@dataclass(frozen=True, slots=True)
class Pieces:
    """Costs for the distinct micro-batch settings; index: which one each layout has.

    again: recomputing one layer (with experts where the model has them).
    """

    dense: Cost
    sparse: Cost | None
    again: Cost
    embedding: Cost
    head: Cost
    index: NDArray[np.intp]


def pieces(task: Task) -> Pieces:
    """Forward and backward of a layer, of the embedding and of the output end."""
    micro, selective, index = _micro(task)
    timer = LayerTimer(task.model, micro, task.domain, task.constants, _dropout(task))
    core = timer.attention_core() * selective
    forward, backward = timer.layer(False), timer.layer(True)
    dense = exposed(forward, replace(backward, gpu=backward.gpu + core))
    sparse = None
    if task.model.moe:
        forward, backward = timer.layer(False, sparse=True), timer.layer(True, sparse=True)
        sparse = exposed(forward, replace(backward, gpu=backward.gpu + core))
    return Pieces(
        dense=dense,
        sparse=sparse,
        again=exposed(forward),
        embedding=exposed(timer.embedding(False), timer.embedding(True)),
        head=exposed(timer.head(False), timer.head(True)),
        index=index,
    )


def exposed(*passes: Pass) -> Cost:
    """GPU work with communication runs beside the host that issues it; in each pass the longer one decides.

    Both come in bursts (matrix products let the host run ahead, pointwise chains let it fall behind), so
    the total is a smooth maximum: the cubic norm, a quarter above either when they are equal. Forward and
    backward count apart: a host that fell behind in forward is not repaid by the time it has in backward.
    """
    busy = [p.gpu + p.tensor + p.context + p.expert for p in passes]
    return Cost(
        compute=add([p.gpu for p in passes]),
        tensor=add([p.tensor for p in passes]),
        context=add([p.context for p in passes]),
        expert=add([p.expert for p in passes]),
        other=add([np.cbrt(b * b * b + p.host * p.host * p.host) - b for b, p in zip(busy, passes)]),
    )


def _micro(task: Task) -> tuple[Micro, Floats, NDArray[np.intp]]:
    """The distinct settings, where they recompute selectively (1.0), and which one each layout has."""
    batch, constants = task.batch, task.constants
    columns = [
        batch.tensor_parallel,
        batch.context_parallel,
        batch.context_method,
        batch.expert_parallel,
        batch.micro_batch_size,
        _as_ints(batch.sequence_parallel),
        _as_ints(batch.flash_attention),
        batch.precision,
        _as_ints(batch.recompute_granularity == _SELECTIVE),
        task.seq_length,
        _hooks(task),
    ]
    (t, c, method, e, b, sp, flash, precision, selective, s, hooks), index = distinct(columns)
    slower = np.where(precision == _FP32, _FP32_SPEED, 1.0)
    micro = Micro(
        tensor=t,
        context=c,
        ulysses=method == _ULYSSES,
        expert=e,
        micro_batch=b,
        sequence_parallel=sp == 1,
        flash=flash == 1,
        speed=np.where(precision == _FP8, constants.fp8_speedup, slower),
        seq_length=s,
        hooks=hooks,
        fused_softmax=batch.fusions.masked_softmax,
    )
    return micro, selective.astype(np.float64), index


def _as_ints(mask: NDArray[np.bool_]) -> Ints:
    return mask.view(np.int8).astype(np.int64)


def _dropout(task: Task) -> bool:
    """Stated, or 0.1 for LayerNorm models and 0 for RMSNorm ones."""
    stated = task.trainer.dropout
    return task.model.norm == "layernorm" if stated is None else stated > 0


def _hooks(task: Task) -> Ints:
    """How DeepSpeed's ZeRO-3 fetches each module's parameters from Python: 0 not at all, 1 alone, 2 with peers."""
    if not task.deepspeed:
        return np.zeros(len(task.batch), dtype=np.int64)
    how = np.where(task.replicas > 1, 2, 1)
    return np.where(task.batch.zero_stage == 3, how, 0).astype(np.int64)
