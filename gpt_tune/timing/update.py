"""Owns what follows the last micro-batch: summing gradients, the optimizer, and handing parameters out."""

from __future__ import annotations

import numpy as np

from gpt_tune.layouts.batch import PRECISIONS
from gpt_tune.models import parameters
from gpt_tune.timing import network
from gpt_tune.timing.distinct import distinct
from gpt_tune.timing.layer import tensors_of_layer
from gpt_tune.timing.task import Bools, Floats, Ints, Task

_BF16 = PRECISIONS.index("bf16")
# Adam in fp32 reads gradient, master and two moments and writes three of them and the 16-bit copy (30 bytes a
# parameter); casting and clipping its gradients takes about 10 more. Norm, zeroing and copies touch every
# parameter of the rank, sharded or not.
_ADAM_BYTES = 40.0
_RANK_BYTES = 20.0


def update(task: Task) -> tuple[Floats, Floats]:
    """Exposed seconds of data-parallel traffic, and of the optimizer's own step."""
    on_rank, layers = _held(task)
    bf16_class = _bf16_optimizer(task)
    sharded = (task.batch.zero_stage > 0) | bf16_class
    traffic = _traffic(task, on_rank, sharded) + _tied_tables(task)
    held = on_rank.total
    n_bytes = held * _RANK_BYTES + held * _ADAM_BYTES / np.where(sharded, task.replicas, 1)
    seconds = n_bytes / task.constants.memory_rate
    if task.deepspeed:
        tensors = tensors_of_layer(task.model) * layers
        seconds = seconds + np.where(bf16_class, 0.0, tensors * task.constants.tensor)
    return traffic, seconds


def _held(task: Task) -> tuple[parameters.RankParameters, Ints]:
    """Parameters and layers on the fullest stage of each layout, taken as the one with the embedding."""
    batch = task.batch
    (t, p, e), index = distinct([batch.tensor_parallel, batch.pipeline_parallel, batch.expert_parallel])
    layers = -(-task.model.layers // p)
    first = np.ones(len(t), dtype=np.bool_)
    longest = int(task.seq_length.max())
    found = parameters.on_rank(task.model, t, layers, first, p == 1, e, seq_length=longest)
    return (
        parameters.RankParameters(found.dense[index], found.experts[index], found.embedding[index]),
        layers[index],
    )


def _bf16_optimizer(task: Task) -> Bools:
    """Where DeepSpeed's BF16_Optimizer runs: it shards Adam at ZeRO 0 too, and works on flat buffers."""
    batch = task.batch
    if not task.deepspeed:
        return np.zeros(len(batch), dtype=np.bool_)
    engine = task.trainer.pipeline_engine if task.trainer.name == "megatron-deepspeed" else False
    piped = batch.context_parallel == 1 if engine is None else np.full(len(batch), engine)
    adds_fp32 = task.trainer.gradient_accumulation_dtype == "fp32"
    here = ((batch.zero_stage == 0) & (piped | adds_fp32)) | ((batch.zero_stage == 1) & adds_fp32)
    result: Bools = here & (batch.precision == _BF16)
    return result


def _traffic(task: Task, on_rank: parameters.RankParameters, sharded: Bools) -> Floats:
    """Gradients summed and parameters handed out, experts over their own, smaller groups."""
    t, e, d = task.batch.tensor_parallel, task.batch.expert_parallel, task.replicas
    seconds = _exposed(task, on_rank.dense, network.group(d, t, task.domain, task.constants), sharded)
    seconds = np.where(d > 1, seconds, 0.0)
    if not task.model.moe:
        return seconds
    peers = np.maximum(d // e, 1)
    link = network.group(peers, t * e, task.domain, task.constants)
    return seconds + np.where(peers > 1, _exposed(task, on_rank.experts, link, sharded), 0.0)


def _exposed(task: Task, held: Floats, link: network.Link, sharded: Bools) -> Floats:
    zero, steps = task.batch.zero_stage, task.batch.gradient_accumulation_steps
    once = network.gather(link, 2.0 * held)
    if task.deepspeed:
        # The pipeline engine all-reduces after the flush, whatever the stage below 2; nothing overlaps.
        reduce = np.where(zero < 2, network.all_reduce(link, 2.0 * held), once * steps)
        gathers = np.where(zero < 3, once * sharded, 2.0 * once * steps)
        return reduce + gathers
    wide = 4.0 if task.trainer.name == "megatron-lm" and _adds_fp32(task) else 2.0
    reduce = np.where(zero == 0, network.all_reduce(link, wide * held), network.gather(link, wide * held))
    below_3 = reduce + once * sharded
    shown = 1.0 - task.constants.overlap
    return shown * np.where(zero < 3, below_3, 3.0 * once * steps)


def _adds_fp32(task: Task) -> bool:
    """Whether Megatron-LM reduces gradients in fp32: its default."""
    return task.trainer.gradient_accumulation_dtype in (None, "fp32")


def _tied_tables(task: Task) -> Floats:
    """First and last stage sum the gradients of a word table they both hold."""
    batch = task.batch
    t, p = batch.tensor_parallel, batch.pipeline_parallel
    if not task.model.tied_embeddings:
        return np.zeros(len(batch))
    pair = np.full_like(p, 2)
    stride = t * task.replicas * np.maximum(p - 1, 1)
    link = network.group(pair, stride, task.domain, task.constants)
    words = parameters.padded_vocab(task.model, t) * (task.model.hidden / t)
    return np.where(p > 1, network.all_reduce(link, 2.0 * words), 0.0)
