"""Owns the bytes one transformer layer keeps for its backward pass, and what it borrows while it runs.

Counted operation by operation from Megatron-DeepSpeed's transformer.py, per micro batch and rank; the sums
are those of Korthikanti et al. 2205.05198 table 2 (34 sbh + 5 as^2 b) where the code is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpt_tune.memory.columns import Columns, Floats
from gpt_tune.memory.setup import FSDP, MEGATRON_LM, Setup

# Temporaries of Megatron's scripted bias-gelu, which nothing fuses since nvFuser left torch: elements of
# the width of one MLP activation alive at once, in forward and backward (read off H200 runs).
GELU_FORWARD_TEMPORARIES = 8
GELU_BACKWARD_TEMPORARIES = 6


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Bytes of one layer and micro batch.

    saved: kept when nothing is recomputed. attention, mlp: the two parts of it. scores: the part of
    attention that selective recompute drops. input: the layer's input, which full recompute keeps.
    forward_transient: beyond `saved` of the layer, at the top of its forward pass. mlp_transient and
    attention_transient: likewise in backward.
    """

    attention: Floats
    mlp: Floats
    scores: Floats
    input: Floats
    forward_transient: Floats
    mlp_transient: Floats
    attention_transient: Floats

    @property
    def saved(self) -> Floats:
        return self.attention + self.mlp + self.scores


def layer_bytes(setup: Setup, c: Columns) -> LayerBytes:
    """Bytes of one layer (its experts included, evenly loaded)."""
    model, w, t = setup.model, c.width, c.tensor_parallel
    hidden = c.tokens * model.hidden
    # Inputs of both norms and both column-parallel products, and the two dropout masks.
    mask = _dropout_mask(setup)
    outer = (8.0 / 2.0) * w * hidden * c.replicated + 2.0 * mask * hidden * c.replicated
    statistics = (16.0 if model.norm == "layernorm" else 8.0) * c.tokens * c.replicated
    query = c.tokens * model.heads * model.head_size
    keys = _key_value_elements(setup, c)
    copies = _context_copy(setup, c) * query
    attention_inner = w * (2.0 * query + keys + copies) / t
    inner = _mlp_elements(setup, c)
    scores = _score_bytes(setup, c)
    log_sum = np.where(c.flash, 4.0 * c.tokens * model.heads / t, 0.0)
    half = 0.5 * (outer + statistics)
    mlp_width = w * c.tokens * _mlp_width(setup, c) / t
    gelu = not model.gated_mlp
    raw_scores = c.tokens * c.sequence * c.context * model.heads / t
    return LayerBytes(
        attention=half + attention_inner + log_sum,
        mlp=half + w * inner / t,
        scores=scores,
        input=w * hidden * c.replicated,
        forward_transient=mlp_width * (GELU_FORWARD_TEMPORARIES - 1) if gelu else mlp_width,
        mlp_transient=mlp_width * (GELU_BACKWARD_TEMPORARIES if gelu else 2) + w * hidden,
        attention_transient=w * hidden + np.where(c.flash, w * 3.0 * query / t, 5.5 * raw_scores),
    )


def _dropout_mask(setup: Setup) -> float:
    """Bytes an element that dropout after attention and MLP keeps.

    The scripted bias-dropout-add keeps a mask even at dropout 0 (measured); the eager one does not.
    """
    scripted = setup.deepspeed
    return 1.0 if setup.dropout > 0 or scripted else 0.0


def _key_value_elements(setup: Setup, c: Columns) -> Floats:
    """Elements of keys and values: Megatron-DeepSpeed repeats them to the number of query heads first."""
    heads = setup.model.heads if setup.deepspeed else setup.model.kv_heads
    return c.tokens * (2.0 * heads * setup.model.head_size)


def _context_copy(setup: Setup, c: Columns) -> Floats:
    """Copies of the context kept besides flash attention's output.

    [b s h] to [s b h] copies when the micro batch exceeds 1 (Megatron-DeepSpeed).
    """
    return np.where(setup.deepspeed & c.flash & (c.micro_batch_size > 1), 1.0, 0.0)


def _mlp_width(setup: Setup, c: Columns) -> Floats:
    """Width of one MLP activation: of the dense MLP, or of the experts a token passes through."""
    model = setup.model
    if not model.moe:
        return np.full_like(c.tokens, float(model.ffn))
    sparse = model.experts_per_token * model.expert_ffn + model.shared_expert_ffn
    share = c.sparse_layers / np.maximum(c.layers, 1)
    return share * sparse + (1.0 - share) * model.ffn


def _mlp_elements(setup: Setup, c: Columns) -> Floats:
    """Elements the MLP keeps: before and after its activation; the gated one keeps gate, up, product."""
    model = setup.model
    width = c.tokens * _mlp_width(setup, c)
    if not model.gated_mlp:
        elements = 2.0 * width
    else:
        # Megatron-DeepSpeed's swiglu is not fused: silu(gate) is kept too.
        elements = (4.0 if setup.deepspeed else 3.0) * width
    if model.moe:
        # Dispatched copies of the hidden states, in and out of the experts.
        share = c.sparse_layers / np.maximum(c.layers, 1)
        elements = elements + share * 2.0 * model.experts_per_token * c.tokens * model.hidden
    return elements


def _score_bytes(setup: Setup, c: Columns) -> Floats:
    """Attention probabilities kept without flash attention.

    Fused softmax: its output; unfused in fp32: fp32 output and the 16-bit copy. Dropout adds mask and output.
    """
    model = setup.model
    each = np.where(_fused_softmax(setup, c), 2.0, 6.0)
    if setup.dropout > 0:
        each = np.where(_fused_softmax(setup, c), 5.0, 7.0)
    raw = c.tokens * (c.sequence * c.context) * model.heads / c.tensor_parallel
    return np.where(c.flash, 0.0, each * raw)


def _fused_softmax(setup: Setup, c: Columns) -> Floats:
    """Whether Megatron's fused softmax kernel takes the shape (fused_softmax.is_kernel_available)."""
    if not setup.fused_softmax or setup.trainer.name == FSDP:
        return np.zeros(c.tokens.shape, dtype=np.bool_)
    limit = 16384 if setup.trainer.name == MEGATRON_LM else 4096
    s = setup.seq_length
    heads = c.micro_batch_size * setup.model.heads / c.tensor_parallel
    fits = 16 < s <= limit and s % 4 == 0
    return np.asarray(fits & (heads % 4 == 0), dtype=np.bool_)
