"""Owns the README of a Megatron-DeepSpeed run: what it is, how it was chosen, what to expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpt_tune import rendering
from gpt_tune.planner.types import Plan
from gpt_tune.recipes import script
from gpt_tune.recipes.base import JobSpec
from gpt_tune.recipes.megatron_numbers import RunNumbers
from gpt_tune.words import percent_words, seconds_words

_FILES = (
    ("job.sbatch", "the job"),
    ("rank.sh", "what each rank starts in"),
    ("ds_config.json", "DeepSpeed's configuration as planned; a job uses its own copy"),
    ("plan.json", "the plan"),
    ("make_data.py", "writes the synthetic tokens"),
    ("repaired.py", "mends defects of the public trainer, for the layouts that meet them"),
    ("checkpoints/", "checkpoints, unless they go elsewhere; a new start continues from the newest"),
)


def readme(
    spec: JobSpec,
    plan: Plan,
    numbers: RunNumbers,
    notes: Sequence[str],
    settings: Sequence[tuple[str, Any, str]],
    headline: str,
    *,
    template: str = "megatron-deepspeed/README.md.j2",
    more_files: Sequence[tuple[str, str]] = (),
    left_out: Sequence[str] = (),
) -> bytes:
    """The run folder's README. more_files, left_out: what a recipe built on this one adds and lacks."""
    files = [f for f in (*_FILES, *more_files) if f[0] not in left_out]
    return rendering.render(
        template,
        name=spec.profile.name or "Megatron-DeepSpeed run",
        headline=headline,
        run_id=spec.run_id,
        facts=_facts(spec, plan, numbers),
        layout=_layout(plan),
        reasons=plan.reasons,
        notes=notes,
        overrides=[(n, str(v).replace("$TRAIN_ITERS", "TRAIN_ITERS"), m) for n, v, m in settings],
        rechecked="The script checks the arithmetic before it launches anything, and says the nearest legal value.",
        files=files,
    )


def _facts(spec: JobSpec, plan: Plan, numbers: RunNumbers) -> list[tuple[str, str]]:
    step, memory = plan.step, plan.memory
    hours = numbers.iterations * step.seconds * plan.layout.gpus / 3600
    between = f"{memory.low_gib:.0f} to {memory.high_gib:.0f} at 90 %"
    limit = f" of {memory.limit_gib:.0f}" if memory.limit_gib else ""
    share = f", {percent_words(step.mfu)} of the GPU's peak" if step.mfu else ""
    saving = f"every {numbers.save_interval} iterations" if numbers.save_interval else "none"
    return [
        ("profile", spec.profile.name or "(unnamed)"),
        ("model", spec.model.id),
        ("where", script.where_words(spec)),
        ("expected step time", f"{step.seconds:.3g} s ({step.low:.3g} to {step.high:.3g} at 90 %)"),
        ("expected model TFLOPS per GPU", f"{step.model_tflops:.0f}{share}"),
        ("expected memory per GPU", f"{memory.device_gib:.0f}{limit} GiB ({between})"),
        ("expected training time", f"{seconds_words(numbers.iterations * step.seconds)}, {hours:.1f} GPU-hours"),
        ("checkpoints", saving),
        ("trainer", _trainer(plan)),
    ]  # fmt: skip


def _trainer(plan: Plan) -> str:
    if plan.trainer.name == "megatron-lm":
        return "Megatron-LM"
    return f"Megatron-DeepSpeed with DeepSpeed {plan.trainer.deepspeed or '(not stated)'}"


def _layout(plan: Plan) -> list[tuple[str, str]]:
    x = plan.layout
    recompute: str = x.recompute.granularity
    if x.recompute.granularity == "full":
        recompute += f", {x.recompute.method}, {script.plural(x.recompute.layers or 1, 'layer')}"
    return [
        ("tensor parallel", str(x.tensor_parallel)),
        ("pipeline stages", str(x.pipeline_parallel)),
        *([("model chunks a stage", str(x.virtual_pipeline))] if x.virtual_pipeline > 1 else []),
        ("data parallel", str(x.data_parallel)),
        *(
            [("context parallel", f"{x.context_parallel} ({x.context_method})")]
            if x.context_parallel > 1
            else []
        ),
        *([("expert parallel", str(x.expert_parallel))] if x.expert_parallel > 1 else []),
        ("ZeRO stage", str(x.zero_stage)),
        (
            "batch",
            f"{x.micro_batch_size} sequences x {x.gradient_accumulation_steps} accumulation steps x "
            f"{x.data_parallel} = {x.global_batch_size}",
        ),
        ("sequence parallel", "yes" if x.sequence_parallel else "no"),
        ("recompute", recompute),
        ("precision", x.precision),
        ("flash attention", "yes" if x.flash_attention else "no"),
    ]
