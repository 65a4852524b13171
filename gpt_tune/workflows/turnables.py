"""Owns which numbers of a plan can be turned for a trainer and a model, their short names and what they mean."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields

from gpt_tune.layouts.choices import ACCUMULATION
from gpt_tune.layouts.layout import Fusions, Layout
from gpt_tune.layouts.trainers import TrainerFeatures, features
from gpt_tune.planner.types import PlanRequest

GPUS, BATCH, LENGTH = "gpus", "global_batch_size", "seq_length"
# Numbers of the question itself, which every layout shares.
ASKED = (GPUS, BATCH, LENGTH)
AUTOMATIC = "auto"  # the trainer's own choice

# Short names, as the tables have them, and what each means; every face asks here.
NAMES: dict[str, tuple[str, str]] = {
    "tensor_parallel": ("TP", "tensor parallel: GPUs that share each layer"),
    "pipeline_parallel": ("PP", "pipeline parallel: stages the layers are cut into"),
    "zero_stage": ("ZeRO", "what the data-parallel ranks share: 1 optimizer, 2 gradients too, 3 weights too"),
    "micro_batch_size": ("MBS", "micro batch: sequences in one forward pass of a GPU"),
    "recompute.granularity": ("recompute", "activations computed again in the backward pass"),
    "recompute.method": ("method", "uniform: chunks of layers; block: some layers of each stage"),
    "recompute.layers": ("layers", "uniform: layers in a chunk; block: layers a stage computes again"),
    "sequence_parallel": ("SP", "sequence parallel: norms and dropout are shared by the tensor-parallel GPUs"),
    "context_parallel": ("CP", "context parallel: GPUs that share each sequence"),
    "context_method": ("CP method", "how context-parallel GPUs exchange keys and values"),
    "expert_parallel": ("EP", "expert parallel: GPUs that share the experts"),
    "virtual_pipeline": ("VP", "virtual pipeline: chunks of layers on each stage"),
    "flash_attention": ("flash", "flash attention: the scores are never written to memory"),
    "precision": ("precision", "what the matrices are multiplied in"),
    ACCUMULATION: ("grads in", "what micro batches' gradients are added up in; auto is the trainer's own choice"),
    "fusions.masked_softmax": ("fused softmax", "scale, mask and softmax in one kernel"),
    "fusions.bias_gelu": ("fused gelu", "bias and GeLU in one kernel"),
    "fusions.bias_dropout": ("fused dropout", "bias, dropout and residual in one kernel"),
    "fusions.gradient_accumulation": ("fused grads", "weight gradients are added up inside the matrix product"),
    BATCH: ("batch", "global batch: sequences in a step of all GPUs"),
    LENGTH: ("length", "tokens in a sequence"),
    GPUS: ("GPUs", "in all: parts of a node, or whole nodes"),
}  # fmt: skip


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
    found = [Turnable(key, NAMES[key][0], value, NAMES[key][1]) for key, value in _values(request, layout)]
    return [number for number in found if number.key not in held]


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
    if can.finetune is None:
        yield ACCUMULATION, request.trainer.gradient_accumulation_dtype or AUTOMATIC
        for fusion in fields(Fusions):
            yield f"fusions.{fusion.name}", _switch(getattr(layout.fusions, fusion.name))
    yield BATCH, str(request.global_batch_size)
    yield LENGTH, str(request.seq_length)
    yield GPUS, str(request.gpus)


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
