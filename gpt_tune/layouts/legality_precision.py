"""Owns the rules about number formats: kernels that need 16 bits, and DeepSpeed's traps by version."""

from __future__ import annotations

import numpy as np

from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.batch import PRECISIONS, LayoutBatch
from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.rule import LegalityRule, Mask, Setting, engine_mask
from gpt_tune.layouts.trainers import accumulation_dtype
from gpt_tune.layouts.versions import deepspeed_at_least
from gpt_tune.models.shape import ModelShape

_BF16, _FP16, _FP32, _FP8 = (PRECISIONS.index(p) for p in ("bf16", "fp16", "fp32", "fp8"))
_SANITY = (
    "DeepSpeed runtime/engine.py _do_optimizer_sanity_check, tags v0.16.4, v0.17.5, v0.17.6, v0.18.4, v0.18.5"
)
# flash-attn 2 kernels stop at head size 256, and only since 2.0; version 1 stopped at 128.
_LARGEST_FLASH_HEAD = 256


# NVIDIA GPUs from this compute capability on have bf16 units and flash attention kernels (Ampere).
_AMPERE = (8, 0)


def flash_works(model: ModelShape, precision: str, node: Node) -> bool:
    """Whether flash attention kernels take this head size and precision, on these GPUs."""
    fits = model.head_size <= _LARGEST_FLASH_HEAD and model.head_size % 8 == 0
    return precision != "fp32" and fits and not before_ampere(node)


def before_ampere(node: Node) -> bool:
    """Whether the GPU is known to be older than Ampere."""
    capability = node.gpu.compute_capability
    return capability is not None and capability < _AMPERE


def _precision(b: LayoutBatch, s: Setting) -> Mask:
    return ~np.isin(b.precision, [PRECISIONS.index(p) for p in s.features.precisions])


def _precision_words(x: Layout, s: Setting) -> tuple[str, str]:
    usual = "fp16" if before_ampere(s.node) else "bf16"
    return f"{s.features.words} does not train in {x.precision} here.", f"precision={usual}"


def _flash_precision(b: LayoutBatch, s: Setting) -> Mask:
    return b.flash_attention & (b.precision == _FP32)


def _flash_precision_words(x: Layout, s: Setting) -> tuple[str, str]:
    return "Flash attention works in bf16 and fp16 only, not in fp32.", "flash_attention=false"


def _flash_head(b: LayoutBatch, s: Setting) -> Mask:
    fits = s.model.head_size <= _LARGEST_FLASH_HEAD and s.model.head_size % 8 == 0
    return b.flash_attention & (not fits)


def _flash_head_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"Flash attention takes head sizes up to {_LARGEST_FLASH_HEAD} in multiples of 8, not {s.model.head_size}.",
        "flash_attention=false",
    )


def _flash_gpu(b: LayoutBatch, s: Setting) -> Mask:
    return b.flash_attention & before_ampere(s.node)


def _flash_gpu_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"Flash attention needs an Ampere GPU or a newer one, not {s.node.gpu.name}.",
        "flash_attention=false",
    )


def _bf16_gpu(b: LayoutBatch, s: Setting) -> Mask:
    return (b.precision == _BF16) & before_ampere(s.node)


def _bf16_gpu_words(x: Layout, s: Setting) -> tuple[str, str]:
    return f"{s.node.gpu.name} has no bf16 units: trainers stop in bf16 or crawl.", "precision=fp16"


def _fp8_gpu(b: LayoutBatch, s: Setting) -> Mask:
    return (b.precision == _FP8) & (s.node.gpu.fp8_tflops is None)


def _fp8_gpu_words(x: Layout, s: Setting) -> tuple[str, str]:
    usual = "fp16" if before_ampere(s.node) else "bf16"
    return f"{s.node.gpu.name} has no fp8 units.", f"precision={usual}"


def _fp8_gqa(b: LayoutBatch, s: Setting) -> Mask:
    return (b.precision == _FP8) & (s.model.heads != s.model.kv_heads) & s.is_megatron_deepspeed


def _fp8_gqa_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"fp8 in Megatron-DeepSpeed runs through Transformer Engine, which there refuses grouped queries "
        f"({s.model.heads} heads, {s.model.kv_heads} key-value heads).",
        "precision=bf16",
    )


def _version(s: Setting) -> str:
    return f"DeepSpeed {s.trainer.deepspeed}" if s.trainer.deepspeed else "DeepSpeed"


def _unsharded_bf16_accumulation(b: LayoutBatch, s: Setting) -> Mask:
    """bf16, ZeRO off, no pipeline engine, gradients added up in bf16: raises before 0.17.6."""
    if not s.features.deepspeed or deepspeed_at_least(s.trainer, 0, 17, 6):
        return np.zeros(len(b), dtype=np.bool_)
    accumulates = accumulation_dtype(0, "bf16", s.trainer) == "bf16"
    return (b.precision == _BF16) & (b.zero_stage == 0) & ~engine_mask(b, s) & accumulates


def _unsharded_bf16_accumulation_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"{_version(s)} raises NotImplementedError for bf16 gradients without ZeRO and without the pipeline engine.",
        "zero_stage=1 (or gradient_accumulation_dtype=fp32)",
    )


def _unsharded_fp32_accumulation(b: LayoutBatch, s: Setting) -> Mask:
    """A 16-bit model with ZeRO off and another accumulation dtype raises: bf16 + fp32 from 0.18.5, others always."""
    stated = s.trainer.gradient_accumulation_dtype
    if not s.features.deepspeed or stated is None:
        return np.zeros(len(b), dtype=np.bool_)
    names = np.array(["bf16", "fp16", "fp32", "bf16"])[b.precision]
    mixed = names != stated
    if stated == "fp32" and not deepspeed_at_least(s.trainer, 0, 18, 5):
        mixed = mixed & (names != "bf16")
    return (b.zero_stage == 0) & mixed


def _unsharded_fp32_accumulation_words(x: Layout, s: Setting) -> tuple[str, str]:
    stated = s.trainer.gradient_accumulation_dtype
    return (
        f"{_version(s)} raises NotImplementedError for {x.precision} with {stated} gradient accumulation when "
        "ZeRO is off.",
        "zero_stage=1",
    )


def _zero1_old(b: LayoutBatch, s: Setting) -> Mask:
    """bf16 + ZeRO-1 + pipeline engine with bf16 accumulation before 0.11.2."""
    if deepspeed_at_least(s.trainer, 0, 11, 2) or not s.is_megatron_deepspeed:
        return np.zeros(len(b), dtype=np.bool_)
    accumulates = accumulation_dtype(1, "bf16", s.trainer) == "bf16"
    return (b.precision == _BF16) & (b.zero_stage == 1) & engine_mask(b, s) & accumulates


def _zero1_old_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"{_version(s)} fails in the pipeline engine with bf16 and ZeRO-1 (no clear_lp_grads) unless gradients "
        "are added up in fp32.",
        "gradient_accumulation_dtype=fp32",
    )


def _ulysses_version(b: LayoutBatch, s: Setting) -> Mask:
    old = s.is_megatron_deepspeed and not deepspeed_at_least(s.trainer, 0, 10, 2)
    return (b.context_parallel > 1) & old


def _ulysses_version_words(x: Layout, s: Setting) -> tuple[str, str]:
    return f"{_version(s)} has no sequence parallelism; it came with 0.10.2.", "context_parallel=1"


RULES: tuple[LegalityRule, ...] = (
    LegalityRule("precision-unsupported", _precision, _precision_words, "the trainer's own options"),
    LegalityRule(
        "flash-precision", _flash_precision, _flash_precision_words, "flash-attn: fp16 and bf16 only"
    ),
    LegalityRule("flash-head", _flash_head, _flash_head_words, "flash-attn 2: head size up to 256"),
    LegalityRule("flash-gpu", _flash_gpu, _flash_gpu_words, "flash-attn 2: Ampere, Ada or Hopper GPUs"),
    LegalityRule(
        "bf16-gpu",
        _bf16_gpu,
        _bf16_gpu_words,
        "DeepSpeed runtime/engine.py: type bf16 is not supported on the device",
    ),
    LegalityRule("fp8-gpu", _fp8_gpu, _fp8_gpu_words, "the GPU's data sheet"),
    LegalityRule("fp8-gqa", _fp8_gqa, _fp8_gqa_words, "Megatron-DeepSpeed model/transformer.py"),
    LegalityRule("ds-bf16-accum", _unsharded_bf16_accumulation, _unsharded_bf16_accumulation_words, _SANITY),
    LegalityRule("ds-accum-mix", _unsharded_fp32_accumulation, _unsharded_fp32_accumulation_words, _SANITY),
    LegalityRule(
        "ds-bf16-zero1-old",
        _zero1_old,
        _zero1_old_words,
        "DeepSpeed pipe/engine.py, tags v0.11.0 and v0.11.2",
    ),
    LegalityRule(
        "ulysses-version", _ulysses_version, _ulysses_version_words, "Megatron-DeepSpeed arguments.py"
    ),
)
