"""Owns the DeepSpeed configuration of a run, and which gradient accumulation each ZeRO stage takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gpt_tune.layouts import legality, versions
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.layouts.rule import Setting
from gpt_tune.layouts.trainers import accumulation_dtype
from gpt_tune.profiles.schema import Training

_ACCUMULATION_RULES = ("ds-bf16-accum", "ds-accum-mix", "ds-bf16-zero1-old")
# data_types came with DeepSpeed 0.8.0 (runtime/config.py at the tags v0.7.0 and v0.8.0).
_FIRST_WITH_DATA_TYPES = (0, 8, 0)


@dataclass(frozen=True, slots=True)
class Accumulation:
    """The dtype gradients are added up in at one ZeRO stage; refused says why that stage cannot run."""

    dtype: str
    refused: str = ""


def by_stage(layout: Layout, setting: Setting) -> tuple[Accumulation, ...]:
    """What a run does when its ZeRO stage is overridden: one entry for each of the stages 0 to 3."""
    return tuple(_at_stage(layout, stage, setting) for stage in range(4))


def _at_stage(layout: Layout, stage: int, setting: Setting) -> Accumulation:
    changed = replace(layout, zero_stage=stage)
    if setting.trainer.pipeline_engine is None and stage >= 2:
        changed = replace(changed, pipeline_parallel=1)  # the script refuses more stages with its own words
    dtype = accumulation_dtype(stage, layout.precision, setting.trainer)
    for found in legality.problems(changed, setting):
        if found.rule in _ACCUMULATION_RULES:
            return Accumulation(dtype, f"{found.text} Use {found.fix}.")
    return Accumulation(dtype)


def takes_data_types(trainer: Trainer) -> bool:
    """Whether this DeepSpeed reads `data_types.grad_accum_dtype`."""
    return versions.deepspeed_at_least(trainer, *_FIRST_WITH_DATA_TYPES)


def config(layout: Layout, training: Training, trainer: Trainer, accumulation: str) -> dict[str, Any]:
    """The configuration. The job rewrites its numbers when one is overridden, so each key is always there.

    Buckets, prefetch and overlap stay at DeepSpeed's own defaults, which the planner was measured with.
    """
    # With Megatron's sequence parallelism activations are split over the tensor-parallel ranks already;
    # DeepSpeed's pipeline would split them again (Megatron-DeepSpeed #170, #429).
    partitioned = not layout.sequence_parallel
    data: dict[str, Any] = {
        "train_batch_size": layout.global_batch_size,
        "train_micro_batch_size_per_gpu": layout.micro_batch_size,
        "gradient_accumulation_steps": layout.gradient_accumulation_steps,
        "steps_per_print": max(10, training.log_interval),
        "gradient_clipping": float(training.gradient_clipping),
        "zero_optimization": {"stage": layout.zero_stage},
        "pipeline": {"pipe_partitioned": partitioned, "grad_partitioned": partitioned},
        "wall_clock_breakdown": False,
    }
    if layout.precision in ("bf16", "fp8"):
        data["bf16"] = {"enabled": True}
    if layout.precision == "fp16":
        data["fp16"] = {
            "enabled": True, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500,
            "hysteresis": 2, "min_loss_scale": 1,
        }  # fmt: skip
    if takes_data_types(trainer):
        data["data_types"] = {"grad_accum_dtype": accumulation}
    return data
