"""Owns the quantities of one pipeline stage of many layouts that every memory term is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt_tune.layouts.batch import CONTEXT_METHODS, GRANULARITIES, METHODS, PRECISIONS, LayoutBatch
from gpt_tune.layouts.stages import first_layer_of_stage, layers_of_stage, split_of
from gpt_tune.layouts.trainers import pipeline_engine_mask
from gpt_tune.memory.setup import Setup
from gpt_tune.models import parameters

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Columns:
    """One stage of each of n layouts; every array has shape (n,). Counts are elements, not bytes.

    dense and experts: parameters on the rank before ZeRO. shards: ranks that share the dense optimizer state;
    expert_shards: those that share the experts'. width: bytes of a 16-bit (or fp32) element.
    tokens: tokens of a micro batch on the rank. kept: micro batches in flight (a fraction when interleaved).
    replicated: 1, or 1/tensor_parallel with sequence parallelism: the share of what tensor parallelism copies.
    """

    stage: Ints
    first: Bools
    last: Bools
    layers: Ints
    sparse_layers: Ints
    dense: Floats
    experts: Floats
    tables: Floats
    shards: Floats
    expert_shards: Floats
    width: Floats
    tokens: Floats
    sequence: Floats
    tensor_parallel: Floats
    replicated: Floats
    kept: Floats
    micro_batches: Ints
    micro_batch_size: Ints
    vocab: Floats
    zero: Ints
    engine: Bools
    bf16: Bools
    fp32: Bools
    flash: Bools
    full: Bools
    selective: Bools
    block: Bools
    chunk: Ints
    pipeline: Ints
    context: Ints
    ulysses: Bools
    data: Ints
    expert_parallel: Ints

    @property
    def parameters(self) -> Floats:
        return self.dense + self.experts


def build(setup: Setup, batch: LayoutBatch, stage: Ints) -> Columns:
    """The columns of stage number `stage` (shape (n,)) of each layout."""
    model = setup.model
    t = batch.tensor_parallel
    p = batch.pipeline_parallel
    split = split_of(setup.trainer)
    layers = layers_of_stage(model.layers, p, stage, split)
    start = first_layer_of_stage(model.layers, p, stage, split)
    first, last = stage == 0, stage == p - 1
    rank = parameters.on_rank(model, t, layers, first, last, batch.expert_parallel, start, setup.seq_length)
    engine = pipeline_engine_mask(batch.zero_stage, batch.context_parallel, setup.trainer)
    dense = rank.dense
    if model.tied_embeddings and setup.deepspeed:
        # The tied copy on the last stage is the whole embedding layer, with its position table.
        dense = dense + (last & ~first) * float(
            parameters.position_rows(model, setup.seq_length) * model.hidden
        )
    granularity = batch.recompute_granularity
    block = batch.recompute_method == METHODS.index("block")
    n_batches = batch.gradient_accumulation_steps
    return Columns(
        stage=stage,
        first=first,
        last=last,
        layers=layers,
        sparse_layers=np.clip(start + layers - model.dense_layers, 0, layers) if model.moe else 0 * layers,
        dense=dense,
        experts=rank.experts,
        tables=rank.embedding,
        shards=(batch.data_parallel * batch.context_parallel).astype(np.float64),
        expert_shards=np.maximum(1.0, batch.data_parallel * batch.context_parallel / batch.expert_parallel),
        width=np.where(batch.precision == PRECISIONS.index("fp32"), 4.0, 2.0),
        tokens=batch.micro_batch_size * (setup.seq_length / batch.context_parallel),
        sequence=setup.seq_length / batch.context_parallel,
        tensor_parallel=t.astype(np.float64),
        replicated=np.where(batch.sequence_parallel, 1.0 / t, 1.0),
        kept=_in_flight(batch, stage),
        micro_batches=n_batches,
        micro_batch_size=batch.micro_batch_size,
        vocab=parameters.padded_vocab(model, t) / t,
        zero=batch.zero_stage,
        engine=engine,
        bf16=batch.precision != PRECISIONS.index("fp16"),
        fp32=batch.precision == PRECISIONS.index("fp32"),
        flash=batch.flash_attention,
        # Megatron-DeepSpeed's pipeline engine knows no block method and then recomputes nothing.
        full=(granularity == GRANULARITIES.index("full")) & ~(block & engine),
        selective=granularity == GRANULARITIES.index("selective"),
        block=block,
        chunk=np.maximum(1, batch.recompute_layers),
        pipeline=p,
        context=batch.context_parallel,
        ulysses=batch.context_method == CONTEXT_METHODS.index("ulysses"),
        data=batch.data_parallel,
        expert_parallel=batch.expert_parallel,
    )


def _in_flight(batch: LayoutBatch, stage: Ints) -> Floats:
    """Micro batches whose activations a stage holds at once under 1F1B, interleaved or not."""
    p, v, m = batch.pipeline_parallel, batch.virtual_pipeline, batch.gradient_accumulation_steps
    plain = np.minimum(p - stage, m)
    # Megatron: 2 (p - i - 1) + (v - 1) p warm-up chunks and the one that runs, each 1/v of the stage.
    chunks = np.minimum(2 * (p - stage - 1) + (v - 1) * p + 1, m * v)
    return np.asarray(np.where(v > 1, chunks / v, plain), dtype=np.float64)


def first_accumulating_stage(batch: LayoutBatch) -> Ints:
    """The first stage that runs a backward pass before its last forward pass, so that gradients lie beside all of its
    activations in flight; no such stage: the last."""
    p, v, m = batch.pipeline_parallel, batch.virtual_pipeline, batch.gradient_accumulation_steps
    plain = p - m + 1
    # 2 (p - i - 1) + (v - 1) p + 1 < m v, for the smallest i.
    interleaved = p - 1 - (m * v - (v - 1) * p - 2) // 2
    return np.asarray(np.clip(np.where(v > 1, interleaved, plain), 0, p - 1), np.int64)
