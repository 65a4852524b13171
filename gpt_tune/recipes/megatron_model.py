"""Owns how Megatron-DeepSpeed is told a model: the flags of a shape, and the shapes it cannot build."""

from __future__ import annotations

from gpt_tune.hardware.parts import Gpu
from gpt_tune.layouts.layout import Layout
from gpt_tune.models import rope
from gpt_tune.models.shape import ModelShape

TRAINERS_THETA = 10000
# SASS that megatron/fused_kernels asks nvcc for (4efb479); there is no PTX, so nothing newer can run it.
_FUSED_SOFTMAX_GPUS = frozenset({(7, 0), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0)})


def problems(model: ModelShape) -> list[str]:
    """Sentences about what this model has and the trainer's GPT lacks."""
    found = []
    if model.moe:
        found.append(f"{model.id} is a mixture of experts; this recipe trains dense models.")
    if model.qk_norm:
        found.append(f"{model.id} normalises queries and keys, which Megatron-DeepSpeed cannot.")
    if model.embedding_norm:
        found.append(f"{model.id} has a norm after the embedding, which Megatron-DeepSpeed cannot.")
    if model.positions == "alibi":
        found.append(f"{model.id} uses ALiBi positions, which Megatron-DeepSpeed cannot.")
    if model.qkv_bias and not model.linear_bias:
        found.append(
            f"{model.id} has biases in queries, keys and values only; Megatron-DeepSpeed has all or none."
        )
    if model.positions == "rotary":
        found += _rotary_problems(model)
    return found


def _rotary_problems(model: ModelShape) -> list[str]:
    scaling = rope.parse(model.rope_scaling, model.id)
    found = []
    if scaling is not None and scaling.kind not in rope.FIXED:
        found.append(
            f"{model.id} scales its rotary angles by {scaling.kind!r}; this recipe can {' and '.join(rope.FIXED)}."
        )
    if model.rope_theta != int(model.rope_theta):
        found.append(
            f"{model.id} has the rotary base {model.rope_theta:g}; Megatron-DeepSpeed takes whole numbers."
        )
    return found


def flags(model: ModelShape) -> list[list[str]]:
    """Flags with values for the shape, except those that a run may override (sequence length)."""
    shape = [
        ["--num-layers", str(model.layers)],
        ["--hidden-size", str(model.hidden)],
        ["--num-attention-heads", str(model.heads)],
        ["--ffn-hidden-size", str(model.ffn)],
    ]
    if model.kv_heads != model.heads:
        shape.append(["--num-key-value-heads", str(model.kv_heads)])
    if model.head_size * model.heads != model.hidden:
        shape.append(["--kv-channels", str(model.head_size)])
    if model.norm == "rmsnorm":
        shape.append(["--normalization", "rmsnorm"])
    if model.positions == "rotary":
        shape.append(["--use-rotary-position-embeddings"])
        # The trainer's own defaults are left out: checkouts before these options have nothing else.
        if model.rope_theta != TRAINERS_THETA:
            shape.append(["--rotary-position-embeddings-theta", str(int(model.rope_theta))])
        if model.rotary_share != 1:
            shape.append(["--rotary-percent", repr(float(model.rotary_share))])
    if model.positions == "none":
        shape.append(["--no-position-embedding"])
    if model.gated_mlp:
        shape.append(["--swiglu"])
    if not model.linear_bias:
        shape.append(["--disable-bias-linear"])
    if not model.tied_embeddings:
        shape.append(["--untie-embeddings-and-output-weights"])
    if model.norm == "rmsnorm" or model.gated_mlp:
        # Models of this family never scale queries and keys by the layer's number.
        shape.append(["--no-query-key-layer-scaling"])
    return shape


def fused_softmax(layout: Layout, gpu: Gpu | None) -> tuple[bool, str]:
    """Whether to use the fused softmax, and why not.

    Flash attention never calls it, and building it takes minutes; its kernels stop at compute capability 9.0.
    """
    if not layout.fusions.masked_softmax:
        return False, "the layout leaves it out"
    if layout.flash_attention:
        return False, "flash attention never calls it, and building it would cost minutes"
    if gpu is not None and gpu.compute_capability not in (None, *_FUSED_SOFTMAX_GPUS):
        major, minor = gpu.compute_capability or (0, 0)
        return False, f"its kernels are built up to compute capability 9.0, {gpu.name} has {major}.{minor}"
    return True, ""


def repairs(model: ModelShape, own_rows: bool) -> list[str]:
    """What repaired.py is told. own_rows: the tokenizer is a Hugging Face one, which counts its tokens short."""
    found = ["--rope-scaling", model.rope_scaling] if model.rope_scaling else []
    return [*found, "--vocabulary", str(model.vocab)] if own_rows else found


def repair_when(model: ModelShape, own_rows: bool = False) -> str:
    """Shell arithmetic that is true when a run meets a defect of the trainer (templates: repaired.py)."""
    if model.kv_heads != model.heads or model.rope_scaling or own_rows:
        return "1"
    conditions = [
        "FUSE_SOFTMAX == 1",
        "(FLASH_ATTENTION == 0 && MICRO_BATCH_SIZE > 1)",
        "(SEQUENCE_PARALLEL == 1 && TP > 1)",
    ]
    if model.positions == "rotary":
        conditions.insert(0, "CONTEXT_PARALLEL == 1")
    return " || ".join(conditions)
