"""Owns FLOPs of a training step, and the conversion between the "TFLOPS" that different trainers print.

- model: forward and backward, causal attention halved, no recompute (Megatron-LM's current figure).
- hardware: model FLOPs plus the recomputed ones.
- megatron_deepspeed: what Megatron-DeepSpeed prints (`throughput_calculator`): attention not halved,
  recompute counted with the logits, and `2 // gqa`, which drops key and value products when gqa > 2.
- narayanan: 96 B s L h^2 (1 + s/6h + V/16Lh) of 2104.04473 eq. 3, printed by older Megatron and BigScience code
  (72 instead of 96 without full recompute).
"""

from __future__ import annotations

from typing import Literal, get_args

from gpt_tune.errors import unknown_name
from gpt_tune.models.parameters import expert_layers
from gpt_tune.models.shape import ModelShape

Kind = Literal["model", "hardware", "megatron_deepspeed", "narayanan"]
KINDS: tuple[str, ...] = get_args(Kind)

# Backward is two products for each one of forward.
_FORWARD_AND_BACKWARD = 3.0
_FLOPS_PER_MAC = 2.0


def attention_core_forward(shape: ModelShape, seq_length: int) -> float:
    """FLOPs per token and layer of scores and their product with values, causal half only."""
    return _FLOPS_PER_MAC * shape.heads * shape.head_size * seq_length


def projections_forward(shape: ModelShape) -> float:
    """FLOPs per token and layer of the query, key, value and output matrices."""
    query = shape.heads * shape.head_size
    keys_values = 2 * shape.kv_heads * shape.head_size
    return _FLOPS_PER_MAC * shape.hidden * (2 * query + keys_values)


def mlp_forward(shape: ModelShape, width: int) -> float:
    """FLOPs per token of one MLP of the given width."""
    return _FLOPS_PER_MAC * (3 if shape.gated_mlp else 2) * shape.hidden * width


def logits_forward(shape: ModelShape, vocab: int | None = None) -> float:
    """FLOPs per token of the output matrix."""
    return _FLOPS_PER_MAC * shape.hidden * (shape.vocab if vocab is None else vocab)


def layers_forward(shape: ModelShape, seq_length: int) -> float:
    """FLOPs per token of all layers, forward."""
    sparse = expert_layers(shape)
    attention = shape.layers * (projections_forward(shape) + attention_core_forward(shape, seq_length))
    dense = (shape.layers - sparse) * mlp_forward(shape, shape.ffn)
    if not sparse:
        return attention + dense
    routed = shape.experts_per_token * mlp_forward(shape, shape.expert_ffn)
    shared = mlp_forward(shape, shape.shared_expert_ffn)
    router = _FLOPS_PER_MAC * shape.hidden * shape.experts
    return attention + dense + sparse * (routed + shared + router)


def model_flops(shape: ModelShape, seq_length: int, tokens: float, vocab: int | None = None) -> float:
    """FLOPs of forward and backward over `tokens` tokens. vocab: the padded one; None takes the model's own."""
    forward = layers_forward(shape, seq_length) + logits_forward(shape, vocab)
    return _FORWARD_AND_BACKWARD * forward * tokens


def hardware_flops(
    shape: ModelShape,
    seq_length: int,
    tokens: float,
    granularity: str = "none",
    recomputed_share: float = 1.0,
    vocab: int | None = None,
) -> float:
    """FLOPs that ran, recompute included. recomputed_share: fraction of layers recomputed (full only)."""
    base = model_flops(shape, seq_length, tokens, vocab)
    if granularity == "selective":
        return base + tokens * shape.layers * attention_core_forward(shape, seq_length)
    if granularity == "full":
        return base + tokens * recomputed_share * layers_forward(shape, seq_length)
    return base


def megatron_deepspeed_flops(
    shape: ModelShape,
    seq_length: int,
    tokens: float,
    granularity: str = "none",
    vocab: int | None = None,
) -> float:
    """The FLOPs behind Megatron-DeepSpeed's printed TFLOPs, integer division and all."""
    h, n = shape.hidden, shape.layers
    groups = shape.heads // shape.kv_heads
    width = shape.expert_ffn if shape.moe else shape.ffn
    matrices = (3 if shape.gated_mlp else 2) * (shape.experts_per_token if shape.moe else 1)
    attention = 2 * n * (h // shape.heads * shape.heads) * seq_length
    forward = (
        n * (1 + 2 // groups + 1) * h * h
        + attention
        + n * matrices * width * h
        + (shape.vocab if vocab is None else vocab) * h
    )
    extra = {"full": forward, "selective": attention}.get(granularity, 0)
    return _FLOPS_PER_MAC * tokens * (_FORWARD_AND_BACKWARD * forward + extra)


def narayanan_flops(
    shape: ModelShape,
    seq_length: int,
    tokens: float,
    granularity: str = "none",
    vocab: int | None = None,
) -> float:
    """Equation 3 of 2104.04473: exact for plain GPT only."""
    h, n = shape.hidden, shape.layers
    factor = 96 if granularity == "full" else 72
    words = shape.vocab if vocab is None else vocab
    return factor * tokens * n * h * h * (1 + seq_length / (6 * h) + words / (16 * n * h))


def flops(
    kind: str,
    shape: ModelShape,
    seq_length: int,
    tokens: float,
    granularity: str = "none",
    vocab: int | None = None,
) -> float:
    """FLOPs by definition `kind` (see the module's first lines)."""
    if kind == "model":
        return model_flops(shape, seq_length, tokens, vocab)
    if kind == "hardware":
        return hardware_flops(shape, seq_length, tokens, granularity, vocab=vocab)
    if kind == "megatron_deepspeed":
        return megatron_deepspeed_flops(shape, seq_length, tokens, granularity, vocab)
    if kind == "narayanan":
        return narayanan_flops(shape, seq_length, tokens, granularity, vocab)
    raise unknown_name("TFLOPS definition", kind, KINDS)


def convert(
    tflops: float,
    source: str,
    target: str,
    shape: ModelShape,
    seq_length: int,
    granularity: str = "none",
    vocab: int | None = None,
) -> float:
    """A rate by one definition as a rate by another; the step time behind both is the same."""
    return (
        tflops
        * flops(target, shape, seq_length, 1.0, granularity, vocab)
        / flops(source, shape, seq_length, 1.0, granularity, vocab)
    )
