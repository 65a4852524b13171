"""Owns the peaks of a training step by phase, and which of them is the highest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpt_tune.memory.activations import LayerBytes, layer_bytes
from gpt_tune.memory.columns import Columns, Floats
from gpt_tune.memory.optimizers import States, states
from gpt_tune.memory.setup import Setup


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
    """Resident states and the moments of each phase (in the order of types.PEAK_PHASES), bytes."""

    states: States
    forward_backward: tuple[Moment, ...]
    reduction: Moment
    optimizer: Moment
    initialisation: Floats


@dataclass(frozen=True, slots=True)
class _Ends:
    """Logits and loss of the last stage (0 elsewhere), bytes."""

    logits: Floats  # one 16-bit copy
    kept: Floats  # fp32 logits that outlive the step
    embedding_gradient: Floats
    first: Floats
    final: Floats


def peaks(setup: Setup, c: Columns) -> Peaks:
    """Every phase of one stage."""
    s = states(setup, c)
    layer = layer_bytes(setup, c)
    ends = _ends(setup, c)
    fixed = _fixed_buffers(setup, c)
    stage_activations = _kept_activations(c, layer) + ends.first + ends.final
    steady = Moment(
        gradients=s.at_step, activations=_zero(c), logits=ends.kept, buffers=fixed, transient=s.step
    )
    return Peaks(
        states=s,
        forward_backward=_forward_backward(setup, c, s, layer, ends, fixed, stage_activations),
        reduction=Moment(s.gradients, _zero(c), ends.kept, fixed + s.bucket, s.reduction),
        optimizer=steady,
        initialisation=s.initialisation,
    )


def _zero(c: Columns) -> Floats:
    return np.zeros_like(c.tokens)


def _ends(setup: Setup, c: Columns) -> _Ends:
    model, w = setup.model, c.width
    last = c.last.astype(np.float64)
    element = last * c.tokens * c.vocab
    buffers = np.where(c.micro_batches > 1, 2.0, 1.0)
    hidden = c.tokens * model.hidden * c.replicated
    mask = 1.0 if setup.dropout > 0 else 0.0
    return _Ends(
        logits=w * element,
        kept=np.where(c.engine & ~c.fp32, 4.0 * element * buffers, 0.0),
        embedding_gradient=last * w * c.vocab * model.hidden,
        first=c.first * mask * hidden,
        final=last * 2.0 * w * hidden,
    )


def _fixed_buffers(setup: Setup, c: Columns) -> Floats:
    """Library workspaces, the causal mask, and Megatron's global score buffer of unfused attention."""
    mask = 2.0 * float(setup.seq_length) ** 2
    scores = np.where(
        c.flash | (not setup.has_score_buffer),
        0.0,
        c.width * c.tokens * (c.sequence * c.context) * setup.model.heads / c.tensor_parallel,
    )
    return setup.workspace + mask + scores


def _kept_activations(c: Columns, layer: LayerBytes) -> Floats:
    """Activations of one micro batch on the stage, under its recompute."""
    whole = layer.saved
    selective = whole - layer.scores
    chunks = np.ceil(c.layers / c.chunk)
    loose = _unchecked_layers(c)
    blocked = np.minimum(c.chunk, c.layers)
    full = np.where(
        c.block,
        blocked * layer.input + (c.layers - blocked) * whole,
        (chunks - np.where(loose > 0, 1, 0)) * layer.input + loose * whole,
    )
    return np.where(c.full, full, c.layers * np.where(c.selective, selective, whole))


def _unchecked_layers(c: Columns) -> Floats:
    """Layers a DeepSpeed pipeline never checkpoints: those in a chunk with the embedding.

    Its chunks are cut over all layer specs (two stand before the first layer), and a chunk that holds
    anything but transformer layers is run as it is.
    """
    ahead = np.where(c.first, 2, 0)
    mixed = np.where((c.chunk > ahead) & c.first, np.minimum(c.chunk - ahead, c.layers), 0)
    return np.where(c.full & c.engine & (c.chunk > 1), mixed, 0).astype(np.float64)


def _forward_backward(
    setup: Setup,
    c: Columns,
    s: States,
    layer: LayerBytes,
    ends: _Ends,
    fixed: Floats,
    stage_activations: Floats,
) -> tuple[Moment, ...]:
    in_flight = c.kept * stage_activations
    accumulated = c.micro_batches > c.kept
    before = np.where(accumulated, s.gradients, 0.0)
    buffers = fixed + s.gathered + np.where(accumulated, s.bucket, 0.0)
    later = fixed + s.gathered + s.bucket
    ratio = 4.0 / c.width
    # fp32 logits, their softmax and a 16-bit copy: one more fp32 copy outside the pipeline engine.
    loss_logits = ends.kept + ends.logits * np.where(c.engine, 1.0 + ratio, 1.0 + 2.0 * ratio)
    softmax = ends.kept + ends.logits * np.where(c.engine, 1.0 + ratio, 1.0 + ratio)
    forward = Moment(before, in_flight, loss_logits, buffers, _zero(c))
    inside = Moment(before, in_flight, ends.kept, buffers, layer.forward_transient)
    start = Moment(before, in_flight, softmax, buffers, _zero(c))
    recomputed = np.where(c.full, np.minimum(c.chunk, c.layers) * layer.saved, 0.0) + np.where(
        c.selective, layer.scores, 0.0
    )
    backward = np.maximum(layer.mlp_transient, layer.attention_transient) + recomputed
    per_layer = (s.gradients - np.minimum(ends.embedding_gradient, s.gradients)) / np.maximum(c.layers, 1)
    first_layer = Moment(
        np.maximum(before, np.minimum(ends.embedding_gradient, s.gradients)),
        in_flight,
        ends.kept,
        later,
        backward,
    )
    done = np.maximum(c.layers - 1, 0) / np.maximum(c.layers, 1) * _kept_activations(c, layer)
    last_layer = Moment(
        np.maximum(before, s.gradients - 0.5 * per_layer), in_flight - done, ends.kept, later, backward
    )
    return forward, inside, start, first_layer, last_layer
