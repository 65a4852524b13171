"""Owns the rules about features a trainer can combine: ZeRO, pipeline, interleaving, experts."""

from __future__ import annotations

import numpy as np

from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.rule import LegalityRule, Mask, Setting, closest, divisors, engine_mask
from gpt_tune.layouts.stages import divides_evenly

_MDS_ARGS = "Megatron-DeepSpeed megatron/arguments.py (4efb479)"
_PIPE = "DeepSpeed runtime/pipe/engine.py: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"


def _degree_unsupported(b: LayoutBatch, s: Setting) -> Mask:
    f = s.features
    return (
        ((b.tensor_parallel > 1) & (not f.tensor_parallel))
        | ((b.pipeline_parallel > 1) & (not f.pipeline_parallel))
        | ((b.expert_parallel > 1) & (not f.expert_parallel))
        | ((b.context_parallel > 1) & (not f.context_methods))
    )


def _degree_unsupported_words(x: Layout, s: Setting) -> tuple[str, str]:
    f = s.features
    kinds = (
        ("tensor_parallel", x.tensor_parallel, f.tensor_parallel),
        ("pipeline_parallel", x.pipeline_parallel, f.pipeline_parallel),
        ("expert_parallel", x.expert_parallel, f.expert_parallel),
        ("context_parallel", x.context_parallel, bool(f.context_methods)),
    )
    lacking = [(n, v) for n, v, offered in kinds if v > 1 and not offered]
    said = " and ".join(f"no {name.replace('_', ' ')} ({value})" for name, value in lacking)
    first, *others = (f"{name}=1" for name, _ in lacking)
    return f"{f.words} has {said}.", f"{first} with {', '.join(others)}" if others else first


def _zero(b: LayoutBatch, s: Setting) -> Mask:
    return ~np.isin(b.zero_stage, s.features.zero_stages)


def _zero_words(x: Layout, s: Setting) -> tuple[str, str]:
    stages = list(s.features.zero_stages)
    return (
        f"{s.features.words} offers ZeRO {', '.join(map(str, stages))} (as sharding), not ZeRO-{x.zero_stage}.",
        f"zero_stage={closest(stages, x.zero_stage)}",
    )


def _zero_pipeline(b: LayoutBatch, s: Setting) -> Mask:
    return (b.zero_stage >= 2) & (b.pipeline_parallel > 1) & s.is_megatron_deepspeed


def _zero_pipeline_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"ZeRO-{x.zero_stage} with {x.pipeline_parallel} pipeline stages: the pipeline engine refuses it.",
        "zero_stage=1 (or pipeline_parallel=1)",
    )


def _zero_engine(b: LayoutBatch, s: Setting) -> Mask:
    return engine_mask(b, s) & (b.zero_stage >= 2) & (b.pipeline_parallel == 1)


def _zero_engine_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"ZeRO-{x.zero_stage} cannot run in the pipeline engine, which this trainer setting asks for.",
        "zero_stage=1, or run with --no-pipeline-parallel",
    )


def _no_engine_stages(b: LayoutBatch, s: Setting) -> Mask:
    off = s.is_megatron_deepspeed and s.trainer.pipeline_engine is False
    return (b.pipeline_parallel > 1) & off


def _no_engine_stages_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"--no-pipeline-parallel is set, but there are {x.pipeline_parallel} pipeline stages.",
        "pipeline_parallel=1",
    )


def _virtual(b: LayoutBatch, s: Setting) -> Mask:
    return (b.virtual_pipeline > 1) & (not s.features.virtual_pipeline)


def _virtual_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"{s.features.words} has no interleaved schedule, but virtual pipeline is {x.virtual_pipeline}.",
        "virtual_pipeline=1",
    )


def _virtual_alone(b: LayoutBatch, s: Setting) -> Mask:
    return (b.virtual_pipeline > 1) & (b.pipeline_parallel == 1) & s.features.virtual_pipeline


def _virtual_alone_words(x: Layout, s: Setting) -> tuple[str, str]:
    return f"Virtual pipeline {x.virtual_pipeline} needs more than one pipeline stage.", "virtual_pipeline=1"


def _uneven(b: LayoutBatch, s: Setting) -> Mask:
    return ~divides_evenly(s.model.layers, b.pipeline_parallel, b.virtual_pipeline) & s.features.even_stages


def _uneven_words(x: Layout, s: Setting) -> tuple[str, str]:
    chunks = x.pipeline_parallel * x.virtual_pipeline
    text = (
        f"{s.features.words} needs equal stages: {s.model.layers} layers are not divisible by "
        f"{x.pipeline_parallel} stages x {x.virtual_pipeline} chunks = {chunks}."
    )
    if divides_evenly(s.model.layers, x.pipeline_parallel):
        chunks_of = [d for d in range(1, x.virtual_pipeline) if _even(s, x.pipeline_parallel, d)]
        return text, f"virtual_pipeline={max(chunks_of)}"
    stages = [p for p in divisors(s.gpus) if p <= s.model.layers and _even(s, p, x.virtual_pipeline)]
    return text, f"pipeline_parallel={closest(stages or [1], x.pipeline_parallel)}"


def _even(s: Setting, stages: int, chunks: int) -> bool:
    return bool(divides_evenly(s.model.layers, stages, chunks))


def _virtual_batches(b: LayoutBatch, s: Setting) -> Mask:
    uneven = b.gradient_accumulation_steps % b.pipeline_parallel != 0
    return (b.virtual_pipeline > 1) & uneven & s.features.virtual_pipeline


def _virtual_batches_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"The interleaved schedule needs accumulation steps divisible by the {x.pipeline_parallel} stages, "
        f"not {x.gradient_accumulation_steps}.",
        "virtual_pipeline=1",
    )


def _experts_zero3(b: LayoutBatch, s: Setting) -> Mask:
    return (b.zero_stage == 3) & s.model.moe & s.features.deepspeed & (s.trainer.name == "megatron-deepspeed")


def _experts_zero3_words(x: Layout, s: Setting) -> tuple[str, str]:
    return "DeepSpeed does not support its mixture of experts with ZeRO-3.", "zero_stage=2"


def _experts_sp(b: LayoutBatch, s: Setting) -> Mask:
    split = (b.expert_parallel > 1) & (b.tensor_parallel > 1) & ~b.sequence_parallel
    return split & (s.trainer.name == "megatron-lm")


def _experts_sp_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"Expert parallel {x.expert_parallel} with tensor parallel {x.tensor_parallel} needs sequence parallel "
        "in Megatron-LM.",
        "sequence_parallel=true",
    )


def _experts_quantised(b: LayoutBatch, s: Setting) -> Mask:
    return np.full(len(b), s.model.moe and s.features.finetune == "qlora")


def _experts_quantised_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"{s.model.id} has {s.model.experts} experts, whose weights bitsandbytes does not quantise.",
        "--trainer lora",
    )


RULES: tuple[LegalityRule, ...] = (
    LegalityRule(
        "degree-unsupported", _degree_unsupported, _degree_unsupported_words, "the trainer's own options"
    ),
    LegalityRule("zero-unsupported", _zero, _zero_words, "the trainer's own options"),
    LegalityRule("zero-pipeline", _zero_pipeline, _zero_pipeline_words, _PIPE),
    LegalityRule("zero-engine", _zero_engine, _zero_engine_words, _PIPE),
    LegalityRule("no-pipeline-stages", _no_engine_stages, _no_engine_stages_words, _MDS_ARGS),
    LegalityRule("virtual-unsupported", _virtual, _virtual_words, "DeepSpeed's pipeline has no interleaving"),
    LegalityRule("virtual-alone", _virtual_alone, _virtual_alone_words, "Megatron-LM arguments.py"),
    LegalityRule("stages-even", _uneven, _uneven_words, "Megatron-LM arguments.py: layers % (PP x VPP)"),
    LegalityRule("virtual-batches", _virtual_batches, _virtual_batches_words, "Megatron-LM schedules.py"),
    LegalityRule(
        "experts-zero3", _experts_zero3, _experts_zero3_words, "DeepSpeed engine: MoE not with Stage 3"
    ),
    LegalityRule(
        "experts-qlora",
        _experts_quantised,
        _experts_quantised_words,
        "bitsandbytes quantises nn.Linear; the experts of transformers are stacked parameters",
    ),
    LegalityRule("experts-sp", _experts_sp, _experts_sp_words, "Megatron-LM arguments.py"),
)
