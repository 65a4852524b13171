"""Owns the rules about activation recompute."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpt_tune.layouts.batch import GRANULARITIES, METHODS, LayoutBatch
from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.rule import LegalityRule, Mask, Setting, engine_mask
from gpt_tune.layouts.stages import most_layers

_FULL, _SELECTIVE = GRANULARITIES.index("full"), GRANULARITIES.index("selective")
_UNIFORM, _BLOCK = METHODS.index("uniform"), METHODS.index("block")
_NO_METHOD = METHODS.index(None)
_MDS_ARGS = "Megatron-DeepSpeed megatron/arguments.py (4efb479)"


def _granularity(b: LayoutBatch, s: Setting) -> Mask:
    allowed = [GRANULARITIES.index(g) for g in s.features.recompute_granularities]
    return ~np.isin(b.recompute_granularity, allowed)


def _granularity_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"{s.features.words} has no {x.recompute.granularity} recompute.",
        f"recompute.granularity={s.features.recompute_granularities[-1]}",
    )


def _stray_method(b: LayoutBatch, s: Setting) -> Mask:
    return (b.recompute_granularity != _FULL) & (
        (b.recompute_method != _NO_METHOD) | (b.recompute_layers != 0)
    )


def _stray_method_words(x: Layout, s: Setting) -> tuple[str, str]:
    said = f"method {x.recompute.method}" if x.recompute.method else f"layers {x.recompute.layers}"
    return (
        f"Recompute {said} belongs to granularity full, not {x.recompute.granularity}.",
        "recompute.granularity=full",
    )


def _no_method(b: LayoutBatch, s: Setting) -> Mask:
    return (b.recompute_granularity == _FULL) & (b.recompute_method == _NO_METHOD)


def _no_method_words(x: Layout, s: Setting) -> tuple[str, str]:
    return "Full recompute needs a method.", f"recompute.method={s.features.recompute_methods[0]}"


def _no_layers(b: LayoutBatch, s: Setting) -> Mask:
    return (b.recompute_granularity == _FULL) & (b.recompute_method != _NO_METHOD) & (b.recompute_layers < 1)


def _no_layers_words(x: Layout, s: Setting) -> tuple[str, str]:
    return f"Full recompute with method {x.recompute.method} needs a number of layers.", "recompute.layers=1"


def _method(b: LayoutBatch, s: Setting) -> Mask:
    allowed = [METHODS.index(m) for m in s.features.recompute_methods]
    stated = b.recompute_method != _NO_METHOD
    return (b.recompute_granularity == _FULL) & stated & ~np.isin(b.recompute_method, allowed)


def _method_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"{s.features.words} has no recompute method {x.recompute.method}.",
        f"recompute.method={s.features.recompute_methods[0]}",
    )


def _block_ignored(b: LayoutBatch, s: Setting) -> Mask:
    return engine_mask(b, s) & (b.recompute_granularity == _FULL) & (b.recompute_method == _BLOCK)


def _block_ignored_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        "The pipeline engine ignores recompute method block: it would recompute nothing.",
        "recompute.method=uniform",
    )


def _too_many_layers(b: LayoutBatch, s: Setting) -> Mask:
    most = most_layers(s.model.layers, b.pipeline_parallel)
    return (b.recompute_granularity == _FULL) & (b.recompute_layers > most)


def _too_many_layers_words(x: Layout, s: Setting) -> tuple[str, str]:
    most = int(most_layers(s.model.layers, x.pipeline_parallel))
    return (
        f"Recompute of {x.recompute.layers} layers, but a stage holds {most} of {s.model.layers}.",
        f"recompute.layers={most}",
    )


def _unpadded_block(b: LayoutBatch, s: Setting) -> Mask:
    block = (b.recompute_method == _BLOCK) & (b.recompute_granularity == _FULL)
    return block & (b.recompute_layers % b.virtual_pipeline != 0)


def _unpadded_block_words(x: Layout, s: Setting) -> tuple[str, str]:
    layers = x.recompute.layers or 0
    below = layers // x.virtual_pipeline * x.virtual_pipeline
    return (
        f"Recompute of {layers} layers a stage does not divide over its {x.virtual_pipeline} chunks.",
        "recompute.layers=" + " or ".join(str(n) for n in (below, below + x.virtual_pipeline) if n),
    )


def _in_one_go(layers: int, pipeline_parallel: ArrayLike, virtual_pipeline: ArrayLike) -> NDArray[np.int64]:
    """Layers of one chunk of the interleaved schedule, or of the whole stage without it."""
    return np.maximum(1, most_layers(layers, pipeline_parallel) // np.asarray(virtual_pipeline, np.int64))


def _larger_than_virtual(b: LayoutBatch, s: Setting) -> Mask:
    uniform = (b.recompute_method == _UNIFORM) & (b.recompute_granularity == _FULL)
    within = _in_one_go(s.model.layers, b.pipeline_parallel, b.virtual_pipeline)
    stage = most_layers(s.model.layers, b.pipeline_parallel)
    return uniform & (b.recompute_layers > within) & (b.recompute_layers <= stage)


def _larger_than_virtual_words(x: Layout, s: Setting) -> tuple[str, str]:
    within = int(_in_one_go(s.model.layers, x.pipeline_parallel, x.virtual_pipeline))
    return (
        f"Recompute {x.recompute.layers} layers at a time, but with {x.virtual_pipeline} chunks a stage only {within} "
        "of its layers run in one go: smaller groups are recomputed, and more is kept than estimated.",
        f"recompute.layers={within}",
    )


def _selective_flash(b: LayoutBatch, s: Setting) -> Mask:
    return (b.recompute_granularity == _SELECTIVE) & b.flash_attention


def _selective_flash_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        "Selective recompute drops the attention scores, which flash attention never stores: nothing is saved.",
        "recompute.granularity=none",
    )


def _block_no_engine(b: LayoutBatch, s: Setting) -> Mask:
    block = (b.recompute_granularity == _FULL) & (b.recompute_method == _BLOCK)
    return block & s.is_megatron_deepspeed & ~engine_mask(b, s)


def _block_no_engine_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        "Recompute method block is estimated as if every layer were recomputed for this trainer.",
        "recompute.method=uniform",
    )


RULES: tuple[LegalityRule, ...] = (
    LegalityRule("recompute-unsupported", _granularity, _granularity_words, "the trainer's own options"),
    LegalityRule("recompute-stray", _stray_method, _stray_method_words, _MDS_ARGS),
    LegalityRule("recompute-method", _no_method, _no_method_words, "Megatron-LM arguments.py"),
    LegalityRule("recompute-no-layers", _no_layers, _no_layers_words, "Megatron-LM arguments.py"),
    LegalityRule("recompute-method-unsupported", _method, _method_words, "the trainer's own options"),
    LegalityRule(
        "recompute-block-ignored", _block_ignored, _block_ignored_words, "Megatron-DeepSpeed gpt_model.py"
    ),
    LegalityRule(
        "recompute-layers", _too_many_layers, _too_many_layers_words, "Megatron-LM transformer_block.py"
    ),
    LegalityRule("recompute-chunks", _unpadded_block, _unpadded_block_words, "Megatron-LM: layers per chunk"),
    LegalityRule(
        "recompute-virtual",
        _larger_than_virtual,
        _larger_than_virtual_words,
        "Megatron-LM transformer_block.py: layers of one virtual stage",
        avoid=True,
    ),
    LegalityRule(
        "selective-flash",
        _selective_flash,
        _selective_flash_words,
        "Megatron-DeepSpeed transformer.py",
        avoid=True,
    ),
    LegalityRule(
        "recompute-block-engine", _block_no_engine, _block_no_engine_words, "gpt-tune's own limit", avoid=True
    ),
)
