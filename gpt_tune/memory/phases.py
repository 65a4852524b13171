"""Owns the moments of a training step at which memory can be highest, phase by phase.

The moments are those at which H200 runs of the real trainer peaked: inside the last layer's forward pass,
at the logits, in the first and the last layer that backward visits, at the embedding's gradient, in the
reduction and in the optimizer. Between two of them memory only moves monotonically.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpt_tune.memory.activations import LayerBytes
from gpt_tune.memory.columns import Bools, Columns, Floats
from gpt_tune.memory.optimizers import States, states
from gpt_tune.memory.setup import FSDP, MEGATRON_LM, Setup


@dataclass(frozen=True, slots=True)
class Moment:
    """What is allocated at one moment besides the resident states, bytes."""

    gradients: Floats
    activations: Floats
    logits: Floats
    buffers: Floats
    transient: Floats

    @property
    def total(self) -> Floats:
        return self.gradients + self.activations + self.logits + self.buffers + self.transient


@dataclass(frozen=True, slots=True)
class Peaks:
    """Resident states and the moments of each phase (in the order of types.PEAK_PHASES), bytes.

    waiting: checkpoints of micro batches whose forward pass is done and whose backward pass has not begun.
    """

    states: States
    layer: LayerBytes
    ends: Ends
    waiting: Floats
    forward_backward: tuple[Moment, ...]
    reduction: Moment
    optimizer: Moment
    initialisation: Floats


@dataclass(frozen=True, slots=True)
class Ends:
    """What the first and last stage add (0 elsewhere), bytes.

    single: one fp32 copy of the logits. kept: fp32 logits in the pipeline engine's buffers, which outlive the step.
    loss_forward, loss_backward: logits alive when the loss is computed and when its backward begins.
    first, final: activations of embedding and of final norm. table_gradient: of one word table.
    """

    single: Floats
    kept: Floats
    loss_forward: Floats
    loss_backward: Floats
    first: Floats
    final: Floats
    head_gradient: Floats
    table_gradient: Floats


def peaks(setup: Setup, c: Columns, layer: LayerBytes) -> Peaks:
    """Every phase of one stage; layer is activations.layer_bytes of the same columns."""
    s = states(setup, c)
    ends = _ends(setup, c, s)
    fixed = _fixed_buffers(setup, c)
    nothing = np.zeros_like(c.tokens)
    one = _one_micro_batch(c, layer, ends)
    return Peaks(
        states=s,
        layer=layer,
        ends=ends,
        waiting=np.where(c.full, np.maximum(c.kept - 1.0, 0.0) * one, 0.0),
        forward_backward=_forward_backward(setup, c, s, layer, ends, fixed),
        reduction=Moment(s.gradients, nothing, ends.kept, fixed + s.bucket, s.reduction),
        optimizer=Moment(s.at_step, nothing, ends.kept, fixed + s.steady_bucket, s.step),
        initialisation=s.initialisation,
    )


def _ends(setup: Setup, c: Columns, s: States) -> Ends:
    model, w = setup.model, c.width
    last = c.last.astype(np.float64)
    logits = last * w * c.tokens * c.vocab
    single = last * 4.0 * c.tokens * c.vocab  # one fp32 copy
    buffers = np.where(c.micro_batches > 1, 2.0, 1.0)
    kept = np.where(c.engine & ~c.fp32, single * buffers, 0.0)
    hidden = c.tokens * model.hidden * c.replicated
    if setup.trainer.name == FSDP:
        # Fused cross entropy: 16-bit logits and their gradient (LLM Foundry's micro batches prove no more).
        forward = backward = 2.0 * logits
    elif setup.trainer.name == MEGATRON_LM:
        # 16-bit logits and one fp32 copy, which turns into the gradient in place.
        forward = backward = logits + single
    else:
        # Engine: old fp32 logits, 16-bit ones, new fp32 ones; else 16-bit, fp32 and the softmax of them,
        # and with Ulysses the log of that too.
        plain = logits + 2.0 * single + np.where(c.ulysses, single, 0.0)
        forward = np.where(c.engine, kept + logits + single, plain)
        backward = np.where(c.engine, kept + single + logits, 2.0 * single + logits)
    per_gradient = s.gradients / np.maximum(c.parameters, 1.0)
    table = c.vocab * model.hidden
    return Ends(
        single=single,
        kept=kept,
        loss_forward=forward,
        loss_backward=backward,
        # The embedding's dropout mask, and what its norm keeps.
        first=c.first * ((1.0 if setup.dropout > 0 else 0.0) + (w if model.embedding_norm else 0.0)) * hidden,
        final=last * 2.0 * w * hidden,
        head_gradient=last * per_gradient * table,
        table_gradient=c.first * per_gradient * table,
    )


def _fixed_buffers(setup: Setup, c: Columns) -> Floats:
    """Library workspaces, the causal mask, and Megatron's global score buffer of unfused attention."""
    mask = np.where(c.flash & (not setup.deepspeed), 0.0, 2.0 * float(setup.seq_length) ** 2)
    raw = c.tokens * (c.sequence * c.context) * setup.model.heads / c.tensor_parallel
    scores = np.where(c.flash | (not setup.has_score_buffer), 0.0, c.width * raw)
    return setup.workspace + mask + scores


def _kept_layers(c: Columns, layer: LayerBytes) -> Floats:
    """Bytes the stage's layers keep for one micro batch, under its recompute."""
    whole = layer.saved
    chunks = np.ceil(c.layers / c.chunk)
    loose = _unchecked_layers(c)
    blocked = np.minimum(c.chunk, c.layers)
    uniform = (chunks - np.ceil(loose / c.chunk)) * layer.input + loose * whole
    block = blocked * layer.input + (c.layers - blocked) * whole
    plain = c.layers * np.where(c.selective, whole - layer.scores, whole)
    return np.where(c.full, np.where(c.block, block, uniform), plain)


def _one_micro_batch(c: Columns, layer: LayerBytes, ends: Ends) -> Floats:
    """Bytes the stage keeps for one micro batch."""
    return _kept_layers(c, layer) + ends.first + ends.final + _boundary(c, layer)


def _unchecked_layers(c: Columns) -> Floats:
    """Layers that DeepSpeed's pipeline engine never checkpoints: those in a chunk with the embedding.

    Its chunks are cut over all layer specs (two stand before the first layer), and a chunk that holds
    anything but transformer layers is run as it is.
    """
    mixed = np.minimum(np.maximum(c.chunk - 2, 0), c.layers)
    return np.where(c.full & c.engine & c.first & (c.chunk > 1), mixed, 0).astype(np.float64)


def _boundary(c: Columns, layer: LayerBytes) -> Floats:
    """Copies of what a stage receives and sends that the pipeline engine keeps, per micro batch."""
    copies = (~c.first).astype(np.float64) + (~c.last).astype(np.float64)
    return np.where(c.engine, copies * layer.input / (c.tensor_parallel * c.replicated), 0.0)


def _forward_backward(
    setup: Setup, c: Columns, s: States, layer: LayerBytes, ends: Ends, fixed: Floats
) -> tuple[Moment, ...]:
    layers = _kept_layers(c, layer)
    one = _one_micro_batch(c, layer, ends)
    in_flight = c.kept * one
    accumulated = c.micro_batches > c.kept
    before = np.where(accumulated | s.gradients_outlive_step, s.gradients, 0.0)
    grown = np.where(accumulated & ~s.cleared_before_backward, s.gradients, 0.0)
    forward_buffers = fixed + s.gathered + np.where(accumulated, s.lasting_bucket, 0.0) + s.steady_bucket
    buffers = fixed + s.gathered + s.bucket
    nothing = np.zeros_like(in_flight)
    return (
        Moment(before, in_flight, ends.loss_forward, forward_buffers, nothing),
        Moment(before, in_flight, ends.kept, forward_buffers, layer.mlp_forward),
        Moment(
            before,
            np.maximum(in_flight - layer.mlp, 0.0),
            ends.kept,
            forward_buffers,
            layer.attention_forward,
        ),
        Moment(grown, in_flight, ends.loss_backward, forward_buffers, nothing),
        *_backward_moments(setup, c, s, layer, ends, _Backward(grown, in_flight, one, layers, buffers)),
    )


@dataclass(frozen=True, slots=True)
class _Backward:
    """What backward starts from, bytes: gradients there already, activations in flight, of one micro batch,
    of its layers alone, and buffers."""

    gradients: Floats
    in_flight: Floats
    one: Floats
    layers: Floats
    buffers: Floats


def _backward_moments(
    setup: Setup, c: Columns, s: States, layer: LayerBytes, ends: Ends, b: _Backward
) -> tuple[Moment, ...]:
    """In the layer visited first, in the one visited last (its MLP, its attention), and at the embedding.

    Activations fall and gradients grow from layer to layer, so the highest point is at one of the two.
    """
    late = _late_gradients(setup, c, s, ends)
    remaining = b.in_flight - np.maximum(c.layers - 1, 0) / np.maximum(c.layers, 1) * b.layers
    alone = np.where(c.block, 1, np.minimum(c.chunk, c.layers))
    recomputed = np.where(c.full, alone * layer.saved, 0.0)
    whole = _reassembled(setup, c, layer)
    adds = (b.gradients > 0) & (c.zero <= 1) & setup.deepspeed
    product = np.where(adds, _weight_gradient(setup, c, layer), 0.0)
    mlp = recomputed + np.maximum(layer.mlp_backward, product) + whole
    again = np.where(c.full, recomputed + layer.mlp_forward + whole, 0.0)
    # The MLP of the layer has been freed when its attention runs backward.
    freed = np.where(c.full | (c.layers == 0), 0.0, layer.mlp)
    attention = (
        np.where(c.full, recomputed - layer.mlp, np.where(c.selective, layer.scores, 0.0))
        + layer.attention_backward
        + whole
    )
    second_table = np.where(late.has_table_gradient | (b.gradients > 0), ends.table_gradient, 0.0)
    at_head = np.maximum(b.gradients, ends.head_gradient)
    worst = np.maximum(mlp, again)
    return (
        Moment(at_head, b.in_flight, ends.kept, b.buffers, worst),
        Moment(at_head, b.in_flight - freed, ends.kept, b.buffers, attention),
        Moment(np.maximum(b.gradients, late.mlp), remaining, ends.kept, b.buffers, worst),
        Moment(np.maximum(b.gradients, late.attention), remaining - freed, ends.kept, b.buffers, attention),
        Moment(
            s.gradients, b.in_flight - b.one, ends.kept, b.buffers, second_table + 2.0 * layer.input + whole
        ),
    )


def _reassembled(setup: Setup, c: Columns, layer: LayerBytes) -> Floats:
    """The stage's output and its gradient, which the pipeline engine puts together again from their tensor-parallel
    slices and holds through backward (pipe/engine.py _exec_backward_pass).
    """
    sliced = c.engine & ~c.last & (c.tensor_parallel > 1) & setup.deepspeed
    return np.where(sliced, 2.0 * layer.input, 0.0)


def _weight_gradient(setup: Setup, c: Columns, layer: LayerBytes) -> Floats:
    """What the MLP's last product borrows in backward where gradients add up in place: the gradients of its output, of
    its input, and of its weight before that is added."""
    model = setup.model
    ffn = max(model.expert_ffn, model.ffn if model.dense_layers else 0) if model.moe else model.ffn
    row = c.width * ffn / c.tensor_parallel
    return layer.input * (1.0 - setup.mask_bytes / c.width) + row * (c.tokens + model.hidden)


@dataclass(frozen=True, slots=True)
class _Late:
    """Gradients present when backward visits the stage's first layer for the first time, bytes."""

    mlp: Floats
    attention: Floats
    has_table_gradient: Bools


def _late_gradients(setup: Setup, c: Columns, s: States, ends: Ends) -> _Late:
    """Everything but what this layer and the embedding still have to add."""
    model = setup.model
    per_parameter = s.gradients / np.maximum(c.parameters, 1.0)
    projection = model.hidden * (model.heads + 2.0 * model.kv_heads) * model.head_size / c.tensor_parallel
    output = model.hidden * model.heads * model.head_size / c.tensor_parallel
    body = np.maximum(c.parameters - c.tables, 0.0) / np.maximum(c.layers, 1)
    mlp = np.maximum(body - projection - output, 0.0)
    down = mlp / (3.0 if model.gated_mlp else 2.0)
    # A tied table's gradient exists since the head's backward when one stage holds both ends.
    shared = c.first & c.last & model.tied_embeddings
    missing_table = np.where(shared, 0.0, ends.table_gradient)
    return _Late(
        mlp=np.maximum(s.gradients - missing_table - per_parameter * (body - down), 0.0),
        attention=np.maximum(s.gradients - missing_table - per_parameter * projection, 0.0),
        has_table_gradient=np.asarray(shared, dtype=np.bool_),
    )
