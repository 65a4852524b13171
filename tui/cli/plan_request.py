"""Owns turning the options of plan and estimate into the planner's question."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from gpt_tune.errors import UserError
from gpt_tune.layouts.choices import agree, parse_fix
from gpt_tune.layouts.trainers import parse_trainer
from gpt_tune.planner.types import PlanRequest
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import ModelChoice, Profile, Resources
from gpt_tune.workflows.request import plan_request


def request_from(
    model: str,
    gpus: int,
    gpu: str | None,
    cluster: str | None,
    partition: str | None,
    gpus_per_node: int | None,
    seq_length: int | None,
    global_batch_size: int | None,
    trainer: str,
    precision: str | None,
    fixed: tuple[str, ...],
    top: int = 10,
) -> PlanRequest:
    """The question; UserError with the number and the nearest legal one for whatever cannot be."""
    _at_least_one("--gpus", gpus)
    for name, value in (("--gpus-per-node", gpus_per_node), ("--seq-length", seq_length),
                        ("--global-batch-size", global_batch_size), ("--top", top)):  # fmt: skip
        _at_least_one(name, value)
    if not gpu and not cluster:
        raise click.UsageError(
            "Say what to plan for: --gpu NAME or --cluster NAME.", click.get_current_context()
        )
    if partition and not cluster:
        raise click.UsageError("--partition needs --cluster.", click.get_current_context())
    chosen = parse_fix(fixed)
    flags: dict[str, Any] = {"precision": precision, "global_batch_size": global_batch_size}
    chosen = agree(chosen, flags)
    profile = Profile(
        model=ModelChoice(id=model, seq_length=seq_length),
        resources=Resources(gpus=gpus, gpus_per_node=gpus_per_node, gpu=gpu or "", partition=partition or ""),
    )
    request = _with_cluster(profile, cluster, top)
    return replace(
        request,
        trainer=parse_trainer(trainer),
        precision=str(chosen.get("precision", "bf16")),
        global_batch_size=int(chosen.get("global_batch_size", request.global_batch_size)),
        fixed=chosen,
    )


def _with_cluster(profile: Profile, name: str | None, top: int) -> PlanRequest:
    if name is None:
        return plan_request(profile, top=top)
    from gpt_tune import clusters

    found = clusters.discover(name)
    site = sites.load(found.name) or sites.guess(found)
    if profile.resources.partition == "" and site.partition:
        profile = replace(profile, resources=replace(profile.resources, partition=site.partition))
    return plan_request(profile, site, found, top)


def _at_least_one(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise UserError(f"{name} is {value}.", "Give 1 or more.")
