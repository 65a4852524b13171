"""Owns what each training program can do at all. A new trainer is one more entry of TRAINERS."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpt_tune.errors import UserError, nearest, unknown_name
from gpt_tune.layouts import versions
from gpt_tune.layouts.layout import Layout, Trainer


@dataclass(frozen=True, slots=True)
class TrainerFeatures:
    """What a trainer offers.

    zero_stages: a distributed optimizer is 1, FSDP full sharding is 3.
    context_methods: in order of preference. recompute_methods: for granularity full.
    even_stages: layers must divide by stages times chunks.
    Fine-tuning trainers: ZeRO 0 is DDP, ZeRO 2 and 3 are DeepSpeed's.
    """

    name: str
    words: str
    zero_stages: tuple[int, ...]
    tensor_parallel: bool
    pipeline_parallel: bool
    virtual_pipeline: bool
    context_methods: tuple[str, ...]
    expert_parallel: bool
    recompute_granularities: tuple[str, ...]
    recompute_methods: tuple[str, ...]
    even_stages: bool
    deepspeed: bool
    precisions: tuple[str, ...]
    source: str
    # What is trained where the weights are published ones: None for pretraining.
    finetune: Literal["full", "lora", "qlora"] | None = None


_FROM_MDS = "Megatron-DeepSpeed 4efb479 megatron/arguments.py, model/gpt_model.py"
_FROM_MLM = "Megatron-LM d98e8a6 megatron/training/arguments.py"

TRAINERS: dict[str, TrainerFeatures] = {
    t.name: t
    for t in (
        TrainerFeatures(
            "megatron-deepspeed",
            "Megatron-DeepSpeed",
            zero_stages=(0, 1, 2, 3),
            tensor_parallel=True,
            pipeline_parallel=True,
            virtual_pipeline=False,
            context_methods=("ulysses",),
            expert_parallel=True,
            recompute_granularities=("none", "selective", "full"),
            recompute_methods=("uniform", "block"),
            even_stages=False,
            deepspeed=True,
            precisions=("bf16", "fp16", "fp32", "fp8"),
            source=_FROM_MDS,
        ),
        TrainerFeatures(
            "megatron-lm",
            "Megatron-LM",
            zero_stages=(0, 1),
            tensor_parallel=True,
            pipeline_parallel=True,
            virtual_pipeline=True,
            context_methods=("ring", "ulysses"),
            expert_parallel=True,
            recompute_granularities=("none", "selective", "full"),
            recompute_methods=("uniform", "block"),
            even_stages=True,
            deepspeed=False,
            precisions=("bf16", "fp16", "fp32", "fp8"),
            source=_FROM_MLM,
        ),
        TrainerFeatures(
            "fsdp",
            "PyTorch FSDP",
            zero_stages=(3,),
            tensor_parallel=True,
            pipeline_parallel=True,
            virtual_pipeline=False,
            context_methods=("ring",),
            expert_parallel=False,
            recompute_granularities=("none", "full"),
            recompute_methods=("uniform", "block"),
            even_stages=False,
            deepspeed=False,
            precisions=("bf16", "fp16", "fp32", "fp8"),
            source="torchtitan b5bcd76 docs; PyTorch FSDP documentation, apply_activation_checkpointing (check_fn)",
        ),
        TrainerFeatures(
            "deepspeed",
            "DeepSpeed with Hugging Face models",
            zero_stages=(0, 1, 2, 3),
            tensor_parallel=False,
            pipeline_parallel=False,
            virtual_pipeline=False,
            context_methods=(),
            expert_parallel=False,
            recompute_granularities=("none", "full"),
            recompute_methods=("uniform",),
            even_stages=False,
            deepspeed=True,
            precisions=("bf16", "fp16", "fp32"),
            source="DeepSpeed configuration documentation; transformers Trainer",
        ),
    )
}

_HUGGING_FACE = "transformers Trainer, peft and bitsandbytes; DeepSpeed configuration documentation"


def _finetuning(name: str, words: str, method: Literal["full", "lora", "qlora"]) -> TrainerFeatures:
    return TrainerFeatures(
        name,
        words,
        zero_stages=(0, 2, 3),
        tensor_parallel=False,
        pipeline_parallel=False,
        virtual_pipeline=False,
        context_methods=(),
        expert_parallel=False,
        recompute_granularities=("none", "full"),
        recompute_methods=("uniform",),
        even_stages=False,
        deepspeed=False,
        precisions=("bf16", "fp16"),
        source=_HUGGING_FACE,
        finetune=method,
    )


TRAINERS.update(
    {
        t.name: t
        for t in (
            _finetuning("qlora", "QLoRA (Hugging Face)", "qlora"),
            _finetuning("lora", "LoRA (Hugging Face)", "lora"),
            _finetuning("full-finetune", "Full fine-tuning (Hugging Face)", "full"),
        )
    }
)

DEFAULT_DEEPSPEED = "0.16.4"


def features(trainer: Trainer) -> TrainerFeatures:
    """What this trainer offers; UserError with the nearest name when it is unknown."""
    found = TRAINERS.get(trainer.name)
    if found is None:
        raise unknown_name("trainer", trainer.name, TRAINERS)
    return found


def is_finetune(trainer: Trainer) -> bool:
    """Whether published weights are trained on, with Hugging Face's libraries."""
    found = TRAINERS.get(trainer.name)
    return found is not None and found.finetune is not None


def parse_trainer(text: str) -> Trainer:
    """`NAME`, `NAME@deepspeed-X.Y.Z` or `NAME@VERSION` (of the trainer itself) as a Trainer."""
    name, separator, suffix = text.strip().partition("@")
    name = name.strip().lower()
    found = features(Trainer(name=name))
    trainer = Trainer(
        name=name,
        deepspeed=DEFAULT_DEEPSPEED if found.deepspeed else None,
        # Only Megatron-DeepSpeed builds its model for DeepSpeed's pipeline engine.
        pipeline_engine=False if found.deepspeed and name != "megatron-deepspeed" else None,
    )
    if not separator:
        return trainer
    package, dash, number = suffix.strip().partition("-")
    if dash and package.lower() == "deepspeed":
        if not found.deepspeed and found.finetune is None:
            raise UserError(
                f"{found.words} does not use DeepSpeed, but the trainer is {text!r}.", f"Write {name!r}."
            )
        return replace(trainer, deepspeed=_version(number, text))
    if dash and not package[:1].isdigit():
        close = nearest(package, ["deepspeed"])
        hint = "Did you mean 'deepspeed'?" if close else "Write NAME@deepspeed-X.Y.Z."
        raise UserError(f"{package!r} in the trainer {text!r} is not known.", hint)
    return replace(trainer, version=_version(suffix, text))


def _version(number: str, text: str) -> str:
    try:
        parsed = versions.parse(number)
    except UserError as error:
        raise UserError(
            f"{number!r} in the trainer {text!r} is not a version.",
            "Write for example megatron-deepspeed@deepspeed-0.16.4.",
        ) from error
    if len(parsed) < 2:
        raise UserError(
            f"{number!r} in the trainer {text!r} is not a whole version.",
            "Write for example megatron-deepspeed@deepspeed-0.16.4.",
        )
    return number.strip()


def pipeline_engine(layout: Layout, trainer: Trainer) -> bool:
    """Whether Megatron-DeepSpeed runs its pipeline engine here.

    It does, even with one stage, unless `--no-pipeline-parallel` is given; ZeRO 2 and 3 and DeepSpeed's
    own sequence parallelism cannot run in it, so they imply that flag.
    """
    zero, context = np.array([layout.zero_stage]), np.array([layout.context_parallel])
    return bool(pipeline_engine_mask(zero, context, trainer)[0])


def pipeline_engine_mask(
    zero_stage: NDArray[np.int64], context_parallel: NDArray[np.int64], trainer: Trainer
) -> NDArray[np.bool_]:
    """`pipeline_engine` of many layouts."""
    if trainer.name != "megatron-deepspeed":
        return np.zeros(len(zero_stage), dtype=np.bool_)
    if trainer.pipeline_engine is not None:
        return np.full(len(zero_stage), trainer.pipeline_engine)
    return np.asarray((zero_stage < 2) & (context_parallel == 1), dtype=np.bool_)


def accumulation_dtype(zero_stage: int, precision: str, trainer: Trainer) -> str:
    """The dtype DeepSpeed adds up gradients in: the stated one, or the default of its version.

    Up to 0.17.5 bf16 without ZeRO defaults to fp32; from 0.17.6 (#7515) it is always the model's dtype.
    """
    if trainer.gradient_accumulation_dtype is not None:
        return trainer.gradient_accumulation_dtype
    if precision == "bf16" and zero_stage == 0 and not versions.deepspeed_at_least(trainer, 0, 17, 6):
        return "fp32"
    return "bf16" if precision == "fp8" else precision
