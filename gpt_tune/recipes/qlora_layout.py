"""Owns a fine-tuning job as the planner sees it: trainer, adapters, batch, and its layout in the profile's words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpt_tune.errors import UserError
from gpt_tune.layouts.choices import check_fixed
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.memory.finetune import ALL_TARGETS, Optimizer, Strategy, Tuning
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.schema import Finetune, Profile

# Tokens of an example where the profile says nothing, and the step's batch of each GPU: the AWS QLoRA test case.
DEFAULT_LENGTH = 1536
DEFAULT_MICRO_BATCH, DEFAULT_ACCUMULATION = 1, 4
ZERO_STAGES: Mapping[str, int] = {"ddp": 0, "zero2": 2, "zero3": 3}
# The trainer takes this optimizer under DeepSpeed whatever is asked (UNDER_DEEPSPEED of its finetune.py).
_UNDER_DEEPSPEED: Optimizer = "adamw"
# Settings that say a layout: its keys -> the profile's.
KEYS: Mapping[str, str] = {
    "zero_stage": "finetune.strategy",
    "micro_batch_size": "finetune.micro_batch_size",
    "gradient_accumulation_steps": "finetune.gradient_accumulation_steps",
    "recompute.granularity": "finetune.gradient_checkpointing",
}


def strategy_of(zero_stage: int) -> Strategy:
    """ZeRO 0 is DDP."""
    return "zero3" if zero_stage == 3 else "zero2" if zero_stage == 2 else "ddp"


def seq_length(profile: Profile) -> int:
    """Tokens an example is cut at."""
    return profile.model.seq_length or DEFAULT_LENGTH


def four_bit(tune: Finetune) -> bool:
    """Whether the base weights are quantised."""
    return tune.base_weights != "16bit"


def trainer_of(profile: Profile) -> Trainer:
    """The trainer whose rules apply: adapters on 4-bit weights, or on 16-bit ones."""
    return Trainer(name="qlora" if four_bit(profile.finetune) else "lora", deepspeed=None)


def tuning_of(tune: Finetune) -> Tuning:
    """What memory and time rest on besides the layout, as this recipe's trainer runs it."""
    return Tuning(
        lora_rank=tune.lora_rank,
        lora_dropout=tune.lora_dropout,
        lora_targets=tuple(tune.lora_targets),
        double_quantisation=tune.double_quantisation,
        optimizer=tune.optimizer,
        deepspeed_optimizer=_UNDER_DEEPSPEED,
        eval_batch_size=None,
    )


def can_be_estimated(tune: Finetune, model: ModelShape) -> bool:
    """Whether memory and time of such a job are modelled: the usual layers, and no experts in 4 bits."""
    return set(tune.lora_targets) <= set(ALL_TARGETS) and not (model.moe and four_bit(tune))


def counts_of(profile: Profile, ranks: int) -> tuple[int, int]:
    """Micro batch and accumulation without a plan. UserError for numbers that contradict each other."""
    tune, whole = profile.finetune, batch_of(profile, ranks)
    micro = tune.micro_batch_size
    if micro is None:
        steps = tune.gradient_accumulation_steps
        micro = DEFAULT_MICRO_BATCH if steps is None else whole // (steps * ranks)
    return micro, whole // (micro * ranks)


def batch_of(profile: Profile, ranks: int) -> int:
    """Examples of one optimizer step over all ranks: as asked, or micro batch x accumulation x ranks."""
    tune, whole = profile.finetune, profile.training.global_batch_size
    micro, steps = tune.micro_batch_size, tune.gradient_accumulation_steps
    if whole is None:
        return (micro or DEFAULT_MICRO_BATCH) * (steps or DEFAULT_ACCUMULATION) * ranks
    part = (micro or 1) * (steps or 1) * ranks
    if micro and steps and part != whole:
        raise UserError(
            f"training.global_batch_size is {whole}, and finetune.micro_batch_size {micro} x "
            f"finetune.gradient_accumulation_steps {steps} x {_ranks(ranks)} are {part} examples a step.",
            f"Set training.global_batch_size to {part}, or leave one of the others open.",
        )
    if whole % part:
        named = f"finetune.micro_batch_size {micro} x " if micro else ""
        named += f"finetune.gradient_accumulation_steps {steps} x " if steps else ""
        near = max(1, round(whole / part)) * part
        raise UserError(
            f"training.global_batch_size is {whole}, which {named}{_ranks(ranks)} do not divide.",
            f"The nearest batch that they do is {near}.",
        )
    return whole


def _ranks(count: int) -> str:
    return f"{count} GPU" + ("" if count == 1 else "s")


def fixed_of(profile: Profile) -> dict[str, Any]:
    """The layout keys that a profile fixes, in either of its two ways. UserError where these disagree."""
    fixed, others = _named(profile.finetune), check_fixed(profile.layout.fixed)
    for key, value in others.items():
        if fixed.get(key, value) != value:
            raise UserError(
                f"layout.fixed says {key}={value}, and {KEYS[key]} says {key}={fixed[key]}.",
                "Keep one of them.",
            )
    return {**fixed, **others}


def _named(tune: Finetune) -> dict[str, Any]:
    named = {
        "zero_stage": ZERO_STAGES.get(tune.strategy),
        "micro_batch_size": tune.micro_batch_size,
        "gradient_accumulation_steps": tune.gradient_accumulation_steps,
        "recompute.granularity": {True: "full", False: "none", None: None}[tune.gradient_checkpointing],
    }
    return {key: value for key, value in named.items() if value is not None}


def named_settings(tune: Finetune) -> dict[str, Any]:
    """The settings that fix the layout, where the profile names any."""
    return {setting: value for setting, value in values_of(_named(tune)).items() if value is not None}


def values_of(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The profile's settings that say a layout (dotted keys): finetune.strategy and so on."""
    found: dict[str, Any] = {}
    for key, setting in KEYS.items():
        if key in flat:
            value = flat[key]
            if key == "zero_stage":
                value = strategy_of(int(value))
            elif key == "recompute.granularity":
                value = value != "none"
            found[setting] = value
    return found


def flat_of(layout: Layout) -> dict[str, Any]:
    """The four layout keys that such a job has."""
    return {
        "zero_stage": layout.zero_stage,
        "micro_batch_size": layout.micro_batch_size,
        "gradient_accumulation_steps": layout.gradient_accumulation_steps,
        "recompute.granularity": layout.recompute.granularity,
    }


def with_layout(profile: Profile, flat: Mapping[str, Any], open_too: bool = True) -> Profile:
    """The profile with a layout in its own words. open_too: also where it leaves the choice to the planner."""
    tune = profile.finetune
    for setting, value in values_of(flat).items():
        name = setting.partition(".")[2]
        if open_too or getattr(tune, name) not in (None, "auto"):
            tune = replace(tune, **{name: value})
    fixed = {key: flat.get(key, value) for key, value in check_fixed(profile.layout.fixed).items()}
    return replace(profile, finetune=tune, layout=replace(profile.layout, fixed=fixed))


def opened(profile: Profile) -> Profile:
    """The profile with its layout left to the planner."""
    tune = replace(
        profile.finetune,
        strategy="auto",
        micro_batch_size=None,
        gradient_accumulation_steps=None,
        gradient_checkpointing=None,
    )
    return replace(profile, finetune=tune)


def as_unplanned(profile: Profile) -> Profile:
    """The profile with what a job without a plan took where it was left open, so that it runs again as it did."""
    tune, batch = profile.finetune, profile.training.global_batch_size
    micro, steps = tune.micro_batch_size, tune.gradient_accumulation_steps
    if batch is None:
        micro, steps = micro or DEFAULT_MICRO_BATCH, steps or DEFAULT_ACCUMULATION
    elif steps is None:
        micro = micro or DEFAULT_MICRO_BATCH
    checkpointing = tune.gradient_checkpointing is not False
    tune = replace(
        tune,
        micro_batch_size=micro,
        gradient_accumulation_steps=steps,
        gradient_checkpointing=checkpointing,
    )
    return replace(profile, finetune=tune)


def steps_of(profile: Profile, batch: int) -> int | None:
    """Optimizer steps of the whole run: as asked, or at most those of max_samples; None where only the data tells."""
    tune = profile.finetune
    if tune.steps is not None:
        return tune.steps
    if tune.max_samples is None:
        return None
    rows = tune.max_samples - min(tune.max_samples - 1, round(tune.max_samples * tune.validation_share))
    return math.ceil(math.ceil(rows / batch) * tune.epochs)
