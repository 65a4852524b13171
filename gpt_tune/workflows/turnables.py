"""Owns which numbers of a plan can be turned for a trainer and a model, their short names and what they mean."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields

from gpt_tune.layouts.choices import ACCUMULATION
from gpt_tune.layouts.layout import Fusions, Layout
from gpt_tune.layouts.trainers import TrainerFeatures, features, is_finetune
from gpt_tune.planner.types import PlanRequest

GPUS, BATCH, LENGTH = "gpus", "global_batch_size", "seq_length"
# Numbers of the question itself, which every layout shares.
ASKED = (GPUS, BATCH, LENGTH)
AUTOMATIC = "auto"  # the trainer's own choice

# Short names, as the tables have them, and what each means; every face asks here.
NAMES: dict[str, tuple[str, str]] = {
    "tensor_parallel": ("TP", "tensor parallel: GPUs that share each layer"),
    "pipeline_parallel": ("PP", "pipeline parallel: stages of layers"),
    "zero_stage": ("ZeRO", "DP ranks share: 1 optimizer, 2 + gradients, 3 + weights"),
    "micro_batch_size": ("MBS", "micro batch: sequences in one pass of a GPU"),
    "recompute.granularity": ("recompute", "activations computed again: none, selective, full"),
    "recompute.method": ("method", "uniform: chunks of layers; block: some of a stage"),
    "recompute.layers": ("layers", "in a chunk (uniform), or recomputed a stage (block)"),
    "sequence_parallel": ("SP", "sequence parallel: norms and dropout split by TP too"),
    "context_parallel": ("CP", "context parallel: GPUs that share each sequence"),
    "context_method": ("CP method", "how these GPUs exchange keys and values"),
    "expert_parallel": ("EP", "expert parallel: GPUs that share the experts"),
    "virtual_pipeline": ("VP", "virtual pipeline: chunks of layers on each stage"),
    "flash_attention": ("flash", "flash attention: scores are never written to memory"),
    "precision": ("precision", "what matrices are multiplied in: bf16 fp16 fp32 fp8"),
    ACCUMULATION: ("grads in", "gradients are added up in: auto, fp32, bf16, fp16"),
    "fusions.masked_softmax": ("fused softmax", "scale, mask and softmax in one kernel"),
    "fusions.bias_gelu": ("fused gelu", "bias and GeLU in one kernel"),
    "fusions.bias_dropout": ("fused dropout", "bias, dropout and residual in one kernel"),
    "fusions.gradient_accumulation": ("fused grads", "weight gradients added up inside the matrix product"),
    BATCH: ("batch", "global batch: sequences in a step of all GPUs"),
    LENGTH: ("length", "tokens in a sequence"),
    GPUS: ("GPUs", "in all: parts of a node, or whole nodes"),
}
# Fine-tuning jobs are made of other words, with these for the values.
TUNING_NAMES = {
    "zero_stage": ("strategy", "shared: ddp none, zero-2 gradients, zero-3 weights"),
    "recompute.granularity": ("checkpointing", "activations are computed again: on or off"),
    BATCH: ("batch", "examples in a step of all GPUs"),
    LENGTH: ("length", "tokens in an example"),
}
TUNING_VALUES = {
    "zero_stage": {"ddp": "0", "zero-2": "2", "zero-3": "3"},
    "recompute.granularity": {"on": "full", "off": "none"},
}


@dataclass(frozen=True, slots=True)
class Turnable:
    """One number that can be turned: the key of the planner, a short label, the value in words, what it means."""

    key: str
    label: str
    value: str
    means: str = ""


def turnables(request: PlanRequest, layout: Layout, held: Collection[str] = ()) -> list[Turnable]:
    """Every number of a layout that may change for this trainer and model, those that matter most first.

    held: keys that the job needs as they are.
    """
    tuned = is_finetune(request.trainer)
    names = {**NAMES, **TUNING_NAMES} if tuned else NAMES
    values = (*tuning_values(layout), *_of_the_question(request)) if tuned else _values(request, layout)
    return [Turnable(key, names[key][0], value, names[key][1]) for key, value in values if key not in held]


def planners_word(request: PlanRequest, key: str, text: str) -> str:
    """A value as the planner knows it: of fine-tuning jobs the user writes ddp and on."""
    said = text.strip().lower()
    words = TUNING_VALUES.get(key, {}) if is_finetune(request.trainer) else {}
    return words.get(said, words.get(f"{said[:-1]}-{said[-1:]}", text))


def tuning_values(layout: Layout) -> Iterator[tuple[str, str]]:
    """What a fine-tuning job's layout decides, in the user's words."""
    for key, value in (
        ("zero_stage", str(layout.zero_stage)),
        ("recompute.granularity", layout.recompute.granularity),
    ):
        yield key, next((word for word, real in TUNING_VALUES[key].items() if real == value), value)
    yield "micro_batch_size", str(layout.micro_batch_size)


def _of_the_question(request: PlanRequest) -> Iterator[tuple[str, str]]:
    yield BATCH, str(request.global_batch_size)
    yield LENGTH, str(request.seq_length)
    yield GPUS, str(request.gpus)


def _values(request: PlanRequest, layout: Layout) -> Iterator[tuple[str, str]]:
    can = features(request.trainer)
    recompute = layout.recompute
    if can.tensor_parallel or layout.tensor_parallel > 1:
        yield "tensor_parallel", str(layout.tensor_parallel)
    if can.pipeline_parallel or layout.pipeline_parallel > 1:
        yield "pipeline_parallel", str(layout.pipeline_parallel)
    yield "zero_stage", str(layout.zero_stage)
    yield "micro_batch_size", str(layout.micro_batch_size)
    yield "recompute.granularity", recompute.granularity
    if recompute.granularity == "full":
        if len(can.recompute_methods) > 1:
            yield "recompute.method", recompute.method or "uniform"
        yield "recompute.layers", str(recompute.layers or 1)
    if can.tensor_parallel:
        yield "sequence_parallel", _switch(layout.sequence_parallel)
    yield from _more_splits(request, layout, can)
    yield "flash_attention", _switch(layout.flash_attention)
    yield "precision", layout.precision
    yield ACCUMULATION, request.trainer.gradient_accumulation_dtype or AUTOMATIC
    for fusion in fields(Fusions):
        yield f"fusions.{fusion.name}", _switch(getattr(layout.fusions, fusion.name))
    yield from _of_the_question(request)


def _more_splits(request: PlanRequest, layout: Layout, can: TrainerFeatures) -> Iterator[tuple[str, str]]:
    if can.context_methods or layout.context_parallel > 1:
        yield "context_parallel", str(layout.context_parallel)
    if layout.context_parallel > 1 and len(can.context_methods) > 1:
        yield "context_method", layout.context_method or can.context_methods[0]
    if request.model.experts and can.expert_parallel:
        yield "expert_parallel", str(layout.expert_parallel)
    if can.virtual_pipeline or layout.virtual_pipeline > 1:
        yield "virtual_pipeline", str(layout.virtual_pipeline)


def _switch(value: bool) -> str:
    return "on" if value else "off"
