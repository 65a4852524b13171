"""Owns the step: layers into stages, stages into a pipeline, then data parallelism and the optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from gpt_tune.calibration.constants import Calibration
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts import stages as stage_layers
from gpt_tune.layouts.batch import GRANULARITIES, METHODS, PRECISIONS, LayoutBatch
from gpt_tune.layouts.layout import Trainer
from gpt_tune.models import parameters
from gpt_tune.models.shape import ModelShape
from gpt_tune.timing import network
from gpt_tune.timing.constants import Constants, resolve
from gpt_tune.timing.distinct import distinct
from gpt_tune.timing.layer import LayerTimer, Micro, Pass, tensors_of_layer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTS = (
    "compute",
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "pipeline_bubble",
    "pipeline_p2p",
    "data_parallel",
    "optimizer",
    "other",
)
# Trainers whose optimizer and collectives are DeepSpeed's.
DEEPSPEED = ("megatron-deepspeed", "deepspeed")
_FULL = GRANULARITIES.index("full")
_SELECTIVE = GRANULARITIES.index("selective")
_BLOCK = METHODS.index("block")
_FP8 = PRECISIONS.index("fp8")
_FP32 = PRECISIONS.index("fp32")
# Tensor cores run fp32 (TF32) at half the 16-bit rate.
_FP32_SPEED = 0.5


@dataclass(frozen=True, slots=True)
class _Cost:
    """Exposed seconds of one micro-batch on one stage piece, by part."""

    compute: Floats
    tensor: Floats
    context: Floats
    expert: Floats
    other: Floats

    @property
    def total(self) -> Floats:
        return self.compute + self.tensor + self.context + self.expert + self.other


def _sum(arrays: Iterable[Floats]) -> Floats:
    """Added one after another: NumPy's own sum orders terms by shape, and one and many must agree to the bit."""
    return reduce(np.add, arrays)


def _exposed(*passes: Pass) -> _Cost:
    """GPU work with communication runs beside the host that issues it; the longer one decides.

    Both come in bursts (matrix products let the host run ahead, pointwise chains let it fall behind), so
    the total is a smooth maximum: the cubic norm, a quarter above either when they are equal.
    """
    busy = _sum([p.gpu + p.tensor + p.context + p.expert for p in passes])
    host = _sum([p.host for p in passes])
    return _Cost(
        compute=_sum([p.gpu for p in passes]),
        tensor=_sum([p.tensor for p in passes]),
        context=_sum([p.context for p in passes]),
        expert=_sum([p.expert for p in passes]),
        other=np.cbrt(busy * busy * busy + host * host * host) - busy,
    )


@dataclass(frozen=True, slots=True)
class _Pieces:
    """One micro-batch's cost of the pieces a stage is made of."""

    dense: _Cost
    sparse: _Cost | None
    again: _Cost  # recomputing one layer (with experts where the model has them)
    embedding: _Cost
    head: _Cost


def parts(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    batch: LayoutBatch,
    seq_length: int | Ints,
    calibration: Calibration | None,
) -> dict[str, Floats]:
    """Exposed seconds by part, a row per layout. seq_length: one for all, or one a layout."""
    constants = resolve(node, trainer, calibration)
    pieces, index = _pieces(model, node, trainer, batch, seq_length, constants)
    result = _pipeline(model, node, trainer, batch, pieces, index, seq_length, constants)
    result["data_parallel"], result["optimizer"] = _update(model, node, trainer, batch, seq_length, constants)
    result["other"] = result["other"] + constants.step
    if constants.jitter:
        nodes = np.maximum(_gpus(batch) / node.gpus_per_node, 1.0)
        total = _sum([result[name] for name in PARTS])
        result["other"] = result["other"] + total * (constants.jitter * np.log2(nodes))
    return {name: result[name] for name in PARTS}


def total(columns: dict[str, Floats]) -> Floats:
    """The parts added in the order of the contract, so that a reader's sum is exactly `seconds`."""
    seconds = np.zeros_like(columns[PARTS[0]])
    for name in PARTS:
        seconds = seconds + columns[name]
    return seconds


def _gpus(batch: LayoutBatch) -> Ints:
    return batch.tensor_parallel * batch.pipeline_parallel * batch.context_parallel * batch.data_parallel


def _pieces(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    batch: LayoutBatch,
    seq_length: int | Ints,
    constants: Constants,
) -> tuple[_Pieces, NDArray[np.intp]]:
    """Costs for the distinct micro-batch settings, and which one each layout has."""
    columns = [
        batch.tensor_parallel,
        batch.context_parallel,
        batch.context_method,
        batch.expert_parallel,
        batch.micro_batch_size,
        batch.sequence_parallel.view(np.int8).astype(np.int64),
        batch.flash_attention.view(np.int8).astype(np.int64),
        batch.precision,
        (batch.recompute_granularity == _SELECTIVE).view(np.int8).astype(np.int64),
        np.broadcast_to(np.asarray(seq_length, dtype=np.int64), (len(batch),)),
        _hooks(trainer, batch),
    ]
    (t, c, method, e, b, sp, flash, precision, selective, s, hooks), index = distinct(columns)
    speed = np.where(precision == _FP8, constants.fp8_speedup, np.where(precision == _FP32, _FP32_SPEED, 1.0))
    micro = Micro(
        tensor=t,
        context=c,
        ulysses=method == 2,
        expert=e,
        micro_batch=b,
        sequence_parallel=sp == 1,
        flash=flash == 1,
        speed=speed,
        seq_length=s,
        hooks=hooks,
        fused_softmax=batch.fusions.masked_softmax,
    )
    dropout = (trainer.dropout or 0.0) > 0 if trainer.dropout is not None else model.norm == "layernorm"
    timer = LayerTimer(model, micro, node.nvlink_domain_gpus, constants, dropout)
    core = timer.attention_core() * (selective == 1)
    forward, backward = timer.layer(False), timer.layer(True)
    dense = _exposed(forward, replace(backward, gpu=backward.gpu + core))
    sparse = None
    if model.moe:
        forward, backward = timer.layer(False, sparse=True), timer.layer(True, sparse=True)
        sparse = _exposed(forward, replace(backward, gpu=backward.gpu + core))
    return _Pieces(
        dense=dense,
        sparse=sparse,
        again=_exposed(forward),
        embedding=_exposed(timer.embedding(False), timer.embedding(True)),
        head=_exposed(timer.head(False), timer.head(True)),
    ), index


def _hooks(trainer: Trainer, batch: LayoutBatch) -> Ints:
    """How DeepSpeed's ZeRO-3 fetches each module's parameters from Python: 0 not at all, 1 alone, 2 with peers."""
    if trainer.name not in DEEPSPEED:
        return np.zeros(len(batch), dtype=np.int64)
    peers = batch.data_parallel * batch.context_parallel > 1
    return np.where(batch.zero_stage == 3, np.where(peers, 2, 1), 0).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Split:
    """Layers on the first, the fullest middle and the last stage of each layout."""

    first: Ints
    middle: Ints
    last: Ints


def _split(model: ModelShape, trainer: Trainer, p: Ints) -> _Split:
    (stages,), index = distinct([p])
    how = stage_layers.split_of(trainer)
    first = stage_layers.layers_of_stage(model.layers, stages, 0, how)
    middle = stage_layers.layers_of_stage(model.layers, stages, 1, how)
    last = stage_layers.layers_of_stage(model.layers, stages, stages - 1, how)
    return _Split(first[index], middle[index], last[index])


def _pipeline(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    batch: LayoutBatch,
    pieces: _Pieces,
    index: NDArray[np.intp],
    seq_length: int | Ints,
    constants: Constants,
) -> dict[str, Floats]:
    """Steady state of the slowest stage, the fill and drain of all, and the sends between them."""
    p, m, v = batch.pipeline_parallel, batch.gradient_accumulation_steps, batch.virtual_pipeline
    split = _split(model, trainer, p)
    single = p == 1
    full = batch.recompute_granularity == _FULL
    limit = np.where(batch.recompute_method == _BLOCK, batch.recompute_layers, model.layers)
    limit = np.where(full, limit, 0)
    dense, again = pieces.dense.total[index], pieces.again.total[index]
    ends = pieces.embedding.total[index], pieces.head.total[index]
    sparse_layer = pieces.sparse.total[index] if pieces.sparse else dense
    dense_first = np.minimum(model.dense_layers if model.moe else model.layers, split.first)

    def stage(layers: Ints, plain: Ints) -> Floats:
        body = plain * dense + (layers - plain) * sparse_layer
        result: Floats = body + np.minimum(layers, limit) * again
        return result

    none = np.zeros_like(split.first) if model.moe else None
    first = stage(split.first, dense_first) + ends[0] + np.where(single, ends[1], 0.0)
    middle = np.where(p > 2, stage(split.middle, split.middle if none is None else none), 0.0)
    last = np.where(single, 0.0, stage(split.last, split.last if none is None else none) + ends[1])
    slowest = np.maximum(np.maximum(first, middle), last)
    use_first, use_last = first >= slowest, (last >= slowest) & (first < slowest)
    layers = np.where(use_first, split.first, np.where(use_last, split.last, split.middle))
    plain = np.where(use_first, dense_first, layers if none is None else 0)
    between = np.maximum(model.layers - split.first - split.last, 0) / np.maximum(split.middle, 1)
    everything = first + last + middle * between
    sends = np.where(single, 0.0, _sends(model, node, batch, seq_length, constants))
    steady = m.astype(np.float64)

    def spread(name: str) -> Floats:
        body = plain * getattr(pieces.dense, name)[index]
        if pieces.sparse:
            body = body + (layers - plain) * getattr(pieces.sparse, name)[index]
        body = body + np.minimum(layers, limit) * getattr(pieces.again, name)[index]
        body = body + np.where(use_first, getattr(pieces.embedding, name)[index], 0.0)
        body = body + np.where(use_last | (use_first & single), getattr(pieces.head, name)[index], 0.0)
        result: Floats = steady * body
        return result

    return {
        "compute": spread("compute"),
        "tensor_parallel": spread("tensor"),
        "context_parallel": spread("context"),
        "expert_parallel": spread("expert"),
        "other": spread("other"),
        "pipeline_bubble": np.maximum(everything - slowest, 0.0) / v,
        "pipeline_p2p": sends * (m + p - 1) * v,
    }


def _sends(
    model: ModelShape, node: Node, batch: LayoutBatch, seq_length: int | Ints, constants: Constants
) -> Floats:
    """Seconds of the activation and gradient transfers of one micro-batch between two stages."""
    t, c = batch.tensor_parallel, batch.context_parallel
    stride = t * c * batch.data_parallel
    crosses = stride * batch.pipeline_parallel > node.nvlink_domain_gpus
    n_bytes = 2.0 * (seq_length / c) * batch.micro_batch_size * model.hidden / t
    return 2.0 * network.send(crosses, n_bytes, constants)


def _update(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    batch: LayoutBatch,
    seq_length: int | Ints,
    constants: Constants,
) -> tuple[Floats, Floats]:
    """Exposed seconds of gradient and parameter traffic, and of the optimizer's own step."""
    t, p, e = batch.tensor_parallel, batch.pipeline_parallel, batch.expert_parallel
    (ut, up, ue), index = distinct([t, p, e])
    layers = -(-model.layers // up)
    first = np.ones(len(ut), dtype=np.bool_)
    longest = seq_length if isinstance(seq_length, int) else int(seq_length.max())
    on_rank = parameters.on_rank(model, ut, layers, first, up == 1, ue, seq_length=longest)
    held = on_rank.total[index]
    d = (batch.data_parallel * batch.context_parallel).astype(np.int64)
    link = network.group(d, t, node.nvlink_domain_gpus, constants)
    traffic = _data_parallel(trainer, batch, held, link, constants)
    bf16_class = _bf16_optimizer(trainer, batch)
    sharded = (batch.zero_stage > 0) | bf16_class
    # Adam in fp32 reads gradient, master and two moments and writes three of them and the 16-bit copy (30 B);
    # casting and clipping its gradients takes about 10 more; norm, zeroing and copies touch the whole rank.
    n_bytes = held * 20.0 + 40.0 * held / np.where(sharded, d, 1)
    optimizer = n_bytes / constants.memory_rate
    if trainer.name in DEEPSPEED:
        tensors = tensors_of_layer(model) * layers[index]
        optimizer = optimizer + np.where(bf16_class, 0.0, tensors * constants.tensor)
    return np.where(d > 1, traffic, 0.0), optimizer


def _adds_fp32(trainer: Trainer) -> bool:
    """Whether Megatron-LM reduces gradients in fp32: its default."""
    return trainer.gradient_accumulation_dtype in (None, "fp32")


def _bf16_optimizer(trainer: Trainer, batch: LayoutBatch) -> NDArray[np.bool_]:
    """Where DeepSpeed's BF16_Optimizer runs: it shards Adam at ZeRO 0 too, and works on flat buffers."""
    if trainer.name not in DEEPSPEED:
        return np.zeros(len(batch), dtype=np.bool_)
    engine = trainer.pipeline_engine if trainer.name == "megatron-deepspeed" else False
    piped = batch.context_parallel == 1 if engine is None else np.full(len(batch), engine)
    adds_fp32 = trainer.gradient_accumulation_dtype == "fp32"
    bf16 = batch.precision == PRECISIONS.index("bf16")
    result: NDArray[np.bool_] = bf16 & (
        ((batch.zero_stage == 0) & (piped | adds_fp32)) | ((batch.zero_stage == 1) & adds_fp32)
    )
    return result


def _data_parallel(
    trainer: Trainer, batch: LayoutBatch, held: Floats, link: network.Link, constants: Constants
) -> Floats:
    once = network.gather(link, 2.0 * held)
    zero, steps = batch.zero_stage, batch.gradient_accumulation_steps
    if trainer.name in DEEPSPEED:
        # The pipeline engine all-reduces after the flush, whatever the stage below 2; nothing overlaps.
        reduce = np.where(zero < 2, network.all_reduce(link, 2.0 * held), once * steps)
        gathers = np.where(zero < 3, once, 2.0 * once * steps)
        return reduce + gathers
    wide = 4.0 if trainer.name == "megatron-lm" and _adds_fp32(trainer) else 2.0
    reduce = np.where(zero == 0, network.all_reduce(link, wide * held), network.gather(link, wide * held))
    exposed = 1.0 - constants.overlap
    return exposed * np.where(zero < 3, reduce + np.where(zero > 0, once, 0.0), 3.0 * once * steps)
