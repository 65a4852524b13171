"""Owns turning a profile into the planner's question, with a default for everything left open."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from gpt_tune import planner, recipes
from gpt_tune.errors import UserError, shown
from gpt_tune.layouts.layout import Trainer
from gpt_tune.layouts.trainers import features, parse_trainer
from gpt_tune.memory.finetune import ALL_TARGETS
from gpt_tune.models import catalogue as models
from gpt_tune.planner.types import PlanRequest
from gpt_tune.profiles.schema import Profile, Site
from gpt_tune.recipes import qlora_layout, qlora_model
from gpt_tune.schedulers.base import Cluster
from gpt_tune.workflows.machine import has_gpus, machine_of

DEFAULT_ITERATIONS = 50


def always_planned(recipe: str) -> bool:
    """Whether jobs of a recipe cannot be made without a plan."""
    return recipe in recipes.names() and recipes.planned(recipe) and not recipes.plan_optional(recipe)


def plan_optional(recipe: str) -> bool:
    """Whether jobs of a recipe run without a plan too."""
    return recipe in recipes.names() and recipes.plan_optional(recipe)


def needs_plan(profile: Profile, site: Site | None = None, cluster: Cluster | None = None) -> bool:
    """Whether the planner has a say in a job: its recipe has a layout to search for, and where that is optional,
    GPU type and model are known. Cheap."""
    if profile.recipe not in recipes.names() or not recipes.planned(profile.recipe):
        return False
    return always_planned(profile.recipe) or _can_plan(profile, site, cluster)


def _can_plan(profile: Profile, site: Site | None, cluster: Cluster | None) -> bool:
    """Whether memory and time of a fine-tuning job can be told: its GPU, the weights' shape and the layers."""
    if qlora_model.known(profile) is None:
        return False
    try:
        machine = machine_of(profile, site, cluster)
        model = models.get(qlora_model.settled(profile).model.id)
    except UserError:
        return False
    if machine.node is None or not has_gpus(cluster, machine.partition):
        return False
    return qlora_layout.can_be_estimated(profile.finetune, model)


def refuse_unplanned(profile: Profile, site: Site | None = None, cluster: Cluster | None = None) -> None:
    """UserError that says why a profile's job has no plan, where it has none."""
    if not recipes.planned(profile.recipe):
        raise UserError(
            f"Recipe {profile.recipe} has no layout to plan.",
            f"Those that have: {', '.join(n for n in recipes.names() if recipes.planned(n))}.",
        )
    if qlora_model.awaited(profile):
        raise UserError(
            "Nothing says what is fine-tuned: finetune.weights is empty.",
            "Name weights (--set finetune.weights=..) or a model (--model NAME).",
        )
    if needs_plan(profile, site, cluster):
        return
    for sentence in recipes.get(profile.recipe).problems(profile):
        raise UserError(sentence, "")
    if qlora_model.known(profile) is None:
        raise UserError(
            f"Nothing tells the shape of {shown(profile.finetune.weights)}.", "Name it: --set model.id=MODEL."
        )
    machine = machine_of(profile, site, cluster)
    models.get(qlora_model.settled(profile).model.id)
    if machine.node is not None and has_gpus(cluster, machine.partition):
        raise UserError(
            f"finetune.lora_targets {', '.join(profile.finetune.lora_targets)} are not all layers that are modelled.",
            f"Those that are: {', '.join(ALL_TARGETS)}.",
        )


def plan_request(
    profile: Profile, site: Site | None = None, cluster: Cluster | None = None, top: int = 10
) -> PlanRequest:
    """The planner's question for a profile. UserError when the GPU type is unknown or the size is illegal."""
    machine = machine_of(profile, site, cluster)
    if machine.node is None:
        raise UserError(
            "Nothing says which GPUs to plan for.",
            "Set resources.gpu to a GPU or node type, for example h100 or p6-b200 (`gpt-tune hardware` lists them).",
        )
    name = cluster.name if cluster else (profile.cluster or None)
    asked = _tuning_choices if tunes(profile) else _training_choices
    return planner.build_request(
        gpus=machine.gpus, node=machine.node, top=top, cluster=name, **asked(profile, machine.gpus)
    )


def tunes(profile: Profile) -> bool:
    """Whether adapters are trained on published weights: the layout stands in [finetune]."""
    return profile.recipe == "qlora"


def _training_choices(profile: Profile, gpus: int) -> dict[str, Any]:
    fixed, training = profile.layout.fixed, profile.training
    return {
        "model": profile.model.id,
        "seq_length": profile.model.seq_length,
        "global_batch_size": None if "global_batch_size" in fixed else training.global_batch_size,
        "trainer": trainer_of(profile),
        "precision": None if "precision" in fixed else training.precision,
        "fix": {**recipes.required(profile.recipe), **fixed},
    }


def _tuning_choices(profile: Profile, gpus: int) -> dict[str, Any]:
    """Fine-tuning takes the precision of the GPU, and its batch by examples a GPU."""
    fixed = qlora_layout.fixed_of(profile)
    return {
        "model": qlora_model.settled(profile).model.id,
        "seq_length": qlora_layout.seq_length(profile),
        "global_batch_size": None if "global_batch_size" in fixed else qlora_layout.batch_of(profile, gpus),
        "trainer": trainer_of(profile),
        "fix": fixed,
        "tuning": qlora_layout.tuning_of(profile.finetune),
    }


def trainer_of(profile: Profile) -> Trainer:
    """The trainer whose rules apply; as for the command line, one without DeepSpeed has no version of it."""
    if tunes(profile):
        return qlora_layout.trainer_of(profile)
    trainer = parse_trainer(recipes.trainer(profile.recipe))
    can = features(trainer)
    return replace(
        trainer,
        deepspeed=(profile.trainer.deepspeed or None) if can.deepspeed else None,
        gradient_accumulation_dtype=profile.trainer.gradient_accumulation_dtype or None,
        dropout=profile.training.dropout,
    )


def iterations_of(profile: Profile, request: PlanRequest | None) -> int | None:
    """Training steps: as asked, or from the tokens wanted; None where only the data tells (epochs of examples)."""
    if tunes(profile):
        steps = profile.finetune.steps
        return steps if request is None else qlora_layout.steps_of(profile, request.global_batch_size)
    training = profile.training
    if training.iterations is not None:
        return training.iterations
    if training.tokens is None or request is None:
        return DEFAULT_ITERATIONS
    return max(1, math.ceil(training.tokens / (request.global_batch_size * request.seq_length)))
