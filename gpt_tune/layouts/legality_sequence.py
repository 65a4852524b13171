"""Owns the rules about splitting the sequence: sequence and context parallel, and attention kernels."""

from __future__ import annotations

import numpy as np

from gpt_tune.layouts.batch import CONTEXT_METHODS, LayoutBatch
from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.rule import LegalityRule, Mask, Setting, closest, divisors, engine_mask

_ULYSSES, _RING = CONTEXT_METHODS.index("ulysses"), CONTEXT_METHODS.index("ring")
_MDS_ARGS = "Megatron-DeepSpeed megatron/arguments.py (4efb479)"
_CRASH_CPU = (
    "measured: Megatron-DeepSpeed 4efb479 with DeepSpeed 0.19.8; get_batch and the embedding both scatter"
)


def _context_method(b: LayoutBatch, s: Setting) -> Mask:
    allowed = [CONTEXT_METHODS.index(m) for m in s.features.context_methods]
    return (b.context_parallel > 1) & ~np.isin(b.context_method, allowed) & bool(allowed)


def _context_method_words(x: Layout, s: Setting) -> tuple[str, str]:
    methods = s.features.context_methods
    said = f"{x.context_method!r}" if x.context_method else "no method"
    return (
        f"Context parallel {x.context_parallel} with {said}: {s.features.words} offers {' and '.join(methods)}.",
        f"context_method={methods[0]}",
    )


def _ulysses_alone(b: LayoutBatch, s: Setting) -> Mask:
    split = (b.tensor_parallel > 1) | (b.pipeline_parallel > 1)
    return (b.context_parallel > 1) & split & s.is_megatron_deepspeed


def _ulysses_alone_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"DeepSpeed's sequence parallel (Ulysses, {x.context_parallel}) needs tensor and pipeline parallel 1, "
        f"not {x.tensor_parallel} and {x.pipeline_parallel}.",
        "context_parallel=1"
        if x.tensor_parallel > 1 and x.pipeline_parallel > 1
        else ("tensor_parallel=1" if x.tensor_parallel > 1 else "pipeline_parallel=1"),
    )


def _ulysses_heads(b: LayoutBatch, s: Setting) -> Mask:
    split = b.context_parallel * b.tensor_parallel
    return (b.context_method == _ULYSSES) & (b.context_parallel > 1) & (s.model.heads % split != 0)


def _ulysses_heads_words(x: Layout, s: Setting) -> tuple[str, str]:
    per_rank = s.model.heads // x.tensor_parallel if s.model.heads % x.tensor_parallel == 0 else s.model.heads
    return (
        f"Ulysses spreads {s.model.heads} heads over context parallel {x.context_parallel} x tensor parallel "
        f"{x.tensor_parallel}, which does not divide them.",
        f"context_parallel={closest(divisors(per_rank), x.context_parallel)}",
    )


def _context_sequence(b: LayoutBatch, s: Setting) -> Mask:
    # Ring attention gives each rank one slice from either end, to balance the causal mask.
    parts = np.where(b.context_method == _RING, 2, 1) * b.context_parallel
    return (b.context_parallel > 1) & (s.seq_length % parts != 0)


def _context_sequence_words(x: Layout, s: Setting) -> tuple[str, str]:
    parts = x.context_parallel * (2 if x.context_method == "ring" else 1)
    below = s.seq_length // parts * parts
    return (
        f"The sequence of {s.seq_length} tokens is not divisible into the {parts} slices of "
        f"context parallel {x.context_parallel}.",
        f"a sequence length of {below or parts} or {below + parts if below else 2 * parts}",
    )


def _sp_with_ulysses(b: LayoutBatch, s: Setting) -> Mask:
    return (
        b.sequence_parallel
        & (b.context_method == _ULYSSES)
        & (b.context_parallel > 1)
        & s.is_megatron_deepspeed
    )


def _sp_with_ulysses_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        "Megatron's sequence parallel and DeepSpeed's (Ulysses) exclude each other.",
        "sequence_parallel=false",
    )


def _sp_without_tp(b: LayoutBatch, s: Setting) -> Mask:
    return b.sequence_parallel & (b.tensor_parallel == 1)


def _sp_without_tp_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        "Sequence parallel does nothing at tensor parallel 1; the trainer drops it.",
        "sequence_parallel=false",
    )


def _sp_no_engine(b: LayoutBatch, s: Setting) -> Mask:
    split = b.sequence_parallel & (b.tensor_parallel > 1)
    return split & ~engine_mask(b, s) & s.is_megatron_deepspeed


def _sp_no_engine_words(x: Layout, s: Setting) -> tuple[str, str]:
    why = f"ZeRO-{x.zero_stage}" if x.zero_stage >= 2 else "--no-pipeline-parallel"
    return (
        f"Sequence parallel without the pipeline engine ({why}) splits the sequence twice, and the 2025 "
        "Megatron-DeepSpeed stops in the first step.",
        "sequence_parallel=false",
    )


RULES: tuple[LegalityRule, ...] = (
    LegalityRule("context-method", _context_method, _context_method_words, "the trainer's own options"),
    LegalityRule(
        "ulysses-alone", _ulysses_alone, _ulysses_alone_words, "Megatron-DeepSpeed core/parallel_state.py"
    ),
    LegalityRule(
        "ulysses-heads", _ulysses_heads, _ulysses_heads_words, "Megatron-DeepSpeed model/transformer.py"
    ),
    LegalityRule(
        "context-seq", _context_sequence, _context_sequence_words, _MDS_ARGS + "; Megatron-LM arguments.py"
    ),
    LegalityRule("sp-ulysses", _sp_with_ulysses, _sp_with_ulysses_words, "Megatron-DeepSpeed initialize.py"),
    LegalityRule("sp-tp1", _sp_without_tp, _sp_without_tp_words, _MDS_ARGS, avoid=True),
    LegalityRule("sp-no-engine", _sp_no_engine, _sp_no_engine_words, _CRASH_CPU),
)
