"""Owns turning a profile into the planner's question, with a default for everything left open."""

from __future__ import annotations

import math
from dataclasses import replace

from gpt_tune import planner, recipes
from gpt_tune.errors import UserError
from gpt_tune.layouts.layout import Trainer
from gpt_tune.layouts.trainers import features, parse_trainer
from gpt_tune.planner.types import PlanRequest
from gpt_tune.profiles.schema import Profile, Site
from gpt_tune.schedulers.base import Cluster
from gpt_tune.workflows.machine import machine_of

DEFAULT_ITERATIONS = 50


def needs_plan(recipe: str) -> bool:
    """Whether a recipe has a parallel layout to search for."""
    return recipe in recipes.names() and recipes.planned(recipe)


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
    return planner.build_request(
        profile.model.id,
        machine.gpus,
        node=machine.node,
        seq_length=profile.model.seq_length,
        global_batch_size=None
        if "global_batch_size" in profile.layout.fixed
        else profile.training.global_batch_size,
        trainer=trainer_of(profile),
        precision=None if "precision" in profile.layout.fixed else profile.training.precision,
        fix={**recipes.required(profile.recipe), **profile.layout.fixed},
        top=top,
        cluster=cluster.name if cluster else (profile.cluster or None),
    )


def trainer_of(profile: Profile) -> Trainer:
    """The trainer whose rules apply; as for the command line, one without DeepSpeed has no version of it."""
    trainer = parse_trainer(recipes.trainer(profile.recipe))
    can = features(trainer)
    return replace(
        trainer,
        deepspeed=(profile.trainer.deepspeed or None) if can.deepspeed or can.finetune else None,
        gradient_accumulation_dtype=profile.trainer.gradient_accumulation_dtype or None,
        dropout=profile.training.dropout,
    )


def iterations_of(profile: Profile, request: PlanRequest | None) -> int:
    """Training steps: as asked, or from the tokens wanted."""
    training = profile.training
    if training.iterations is not None:
        return training.iterations
    if training.tokens is None or request is None:
        return DEFAULT_ITERATIONS
    return max(1, math.ceil(training.tokens / (request.global_batch_size * request.seq_length)))
