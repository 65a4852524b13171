"""Owns the bytes one transformer layer keeps for its backward pass, and what it borrows while it runs.

Counted operation by operation from Megatron-DeepSpeed's transformer.py, per micro batch and rank; the sums
are those of Korthikanti et al. 2205.05198 table 2 (34 sbh + 5 as^2 b) where the code is the same, and they
match the allocator figures of runs on H200 phase by phase.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpt_tune.memory.columns import Bools, Columns, Floats
from gpt_tune.memory.setup import FSDP, MEGATRON_LM, NANOTRON, Setup

# Tensors of one MLP activation alive at once inside Megatron's scripted bias-gelu (nothing fuses it since
# nvFuser left torch) and its backward; read off H200 runs.
GELU_FORWARD = 8
GELU_BACKWARD = 6
# Without the script, gelu's backward holds one more tensor than the layer keeps and a gated MLP's two.
PLAIN_BACKWARD = 1
GATED_BACKWARD = 2

# torch's flash attention backward: gradients of q, k, v, an fp32 accumulator of dq, and the incoming
# gradient, in 2-byte elements a query element; one more copy when the micro batch exceeds 1.
FLASH_BACKWARD = 6.0


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Bytes of one layer and micro batch.

    attention, mlp, scores: what they keep when nothing is recomputed; scores is what selective recompute
    drops. input: the layer's input, which full recompute keeps. The rest is borrowed:
    mlp_forward and mlp_backward on top of the whole layer's saved bytes, attention_forward and
    attention_backward on top of what attention and scores keep (the MLP's part is not there then).
    """

    attention: Floats
    mlp: Floats
    scores: Floats
    input: Floats
    mlp_forward: Floats
    mlp_backward: Floats
    attention_forward: Floats
    attention_backward: Floats

    @property
    def saved(self) -> Floats:
        return self.attention + self.mlp + self.scores


def layer_bytes(setup: Setup, c: Columns) -> LayerBytes:
    """Bytes of one layer (its experts included, evenly loaded)."""
    model, w, t = setup.model, c.width, c.tensor_parallel
    hidden = c.tokens * model.hidden * c.replicated
    query = c.tokens * model.heads * model.head_size / t
    mask = setup.mask_bytes
    # Input and output of the norm (the output feeds a column-parallel product) and a dropout mask, each half.
    # Hugging Face's RMSNorm is made of single operations: it keeps an fp32 and a 16-bit copy for the input.
    norm = 4.0 * w if setup.eager_norm else 2.0 * w
    statistics = (8.0 if model.norm == "layernorm" else 4.0) * c.tokens * c.replicated
    half = norm * hidden + mask * hidden + statistics
    copies = _context_copies(setup, c)
    log_sum = np.where(c.flash, 4.0 * c.tokens * model.heads / t, 0.0)
    inner = w * (query * (1.0 + copies) + _query_key_value(setup, c))
    raw = c.tokens * (c.sequence * c.context) * model.heads / t
    scores, score_forward, score_backward = _scores(setup, c, raw)
    width = w * c.tokens * _mlp_width(setup, c) / t
    return LayerBytes(
        attention=half + inner + log_sum,
        mlp=half + w * _mlp_elements(setup, c) / t,
        scores=scores,
        input=w * hidden,
        mlp_forward=w * hidden + _mlp_forward(setup) * width,
        mlp_backward=(w - mask) * hidden + _mlp_backward(setup) * width,
        attention_forward=score_forward,
        attention_backward=(w - mask) * hidden
        + np.where(c.flash, w * query * FLASH_BACKWARD, score_backward + w * query - w * query * copies),
    )


def _query_key_value(setup: Setup, c: Columns) -> Floats:
    """Elements of queries, keys and values kept.

    Megatron-DeepSpeed repeats keys and values to the number of query heads first. With rotary positions
    queries and keys are new tensors, and values that are a view hold on to the whole projection.
    """
    model = setup.model
    heads = model.heads if setup.repeats_keys else model.kv_heads
    per_head = c.tokens * model.head_size / c.tensor_parallel
    elements = per_head * (model.heads + 2.0 * heads)
    if model.positions != "rotary" or (setup.repeats_keys and model.kv_heads != model.heads):
        return elements
    is_view = (c.context == 1) & (~c.flash | (c.micro_batch_size == 1) | (not setup.deepspeed))
    return elements + np.where(is_view, per_head * (model.heads + model.kv_heads), 0.0)


def _context_copies(setup: Setup, c: Columns) -> Floats:
    """Copies of the context beside flash attention's own output.

    [b s h] to [s b h] needs one when the micro batch exceeds 1 (Megatron-DeepSpeed).
    """
    return np.where(setup.deepspeed & c.flash & (c.micro_batch_size > 1), 1.0, 0.0)


def _mlp_width(setup: Setup, c: Columns) -> Floats:
    """Width of one MLP activation: of the dense MLP, or of the experts a token passes through."""
    model = setup.model
    if not model.moe:
        return np.full_like(c.tokens, float(model.ffn))
    sparse = model.experts_per_token * model.expert_ffn + model.shared_expert_ffn
    share = _sparse_share(c)
    return share * sparse + (1.0 - share) * model.ffn


def _sparse_share(c: Columns) -> Floats:
    """Share of the stage's layers that hold experts; an empty stage counts like the others."""
    return np.where(c.layers > 0, c.sparse_layers / np.maximum(c.layers, 1), 1.0)


def _mlp_elements(setup: Setup, c: Columns) -> Floats:
    """Elements the MLP keeps: before and after its activation; the gated one keeps gate, up, product."""
    model = setup.model
    width = c.tokens * _mlp_width(setup, c)
    if not model.gated_mlp:
        elements = 2.0 * width
    else:
        # Unfused, silu(gate) is kept too (nanotron's GLUActivation is, though it stands for a Megatron-LM here).
        fused = setup.trainer.name == MEGATRON_LM and setup.trainer.version != NANOTRON
        elements = (3.0 if fused else 4.0) * width
    if model.moe:
        # Dispatched copies of the hidden states, into and out of the experts.
        share = _sparse_share(c)
        elements = elements + share * 2.0 * model.experts_per_token * c.tokens * model.hidden
    return elements


def _mlp_forward(setup: Setup) -> float:
    """MLP activations borrowed in forward beyond what the layer keeps."""
    return GELU_FORWARD - 1.0 if setup.scripted_gelu else 0.0


def _mlp_backward(setup: Setup) -> float:
    if setup.model.gated_mlp:
        return GATED_BACKWARD
    return GELU_BACKWARD if setup.scripted_gelu else PLAIN_BACKWARD


def _scores(setup: Setup, c: Columns, raw: Floats) -> tuple[Floats, Floats, Floats]:
    """Bytes of attention scores kept, borrowed in forward and in backward; raw counts elements.

    Fused softmax keeps its output (2 bytes); unfused in fp32 keeps that (4) and, without dropout, the
    16-bit copy. Dropout adds a mask (1) and its output (2). The fused softmax's backward works in place, so that
    never more than one gradient of the scores (2) is borrowed.
    """
    fused = _fused_softmax(setup, c)
    if setup.dropout > 0:
        kept = np.where(fused, 5.0, 7.0)
        forward = np.where(fused, 2.0, 5.0)
        backward = np.where(fused, 2.0, 5.0)
    else:
        kept = np.where(fused, 2.0, 6.0)
        forward = np.where(fused, 2.0, 4.0)
        backward = np.where(fused, 2.0, 6.0)
    none = np.where(c.flash, 0.0, raw)
    return kept * none, forward * none, backward * none


def _fused_softmax(setup: Setup, c: Columns) -> Bools:
    """Whether Megatron's fused softmax kernel takes the shape (fused_softmax.is_kernel_available)."""
    if not setup.fused_softmax or setup.trainer.name == FSDP:
        return np.zeros(c.tokens.shape, dtype=np.bool_)
    limit = 16384 if setup.trainer.name == MEGATRON_LM else 4096
    s = setup.seq_length
    heads = c.micro_batch_size * setup.model.heads / c.tensor_parallel
    fits = 16 < s <= limit and s % 4 == 0
    return np.asarray(fits & (heads % 4 == 0), dtype=np.bool_)
