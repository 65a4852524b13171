"""Owns turning the options of plan and estimate into the planner's question."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from gpt_tune import planner
from gpt_tune.errors import UserError
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.layout import Trainer
from gpt_tune.layouts.trainers import parse_trainer
from gpt_tune.planner.types import PlanRequest
from tui.cli.output import say


def request_from(
    cluster: str | None, partition: str | None, gpu: str | None, gpus_per_node: int | None, fixed: tuple[str, ...],
    top: int = 10, dropout: float | None = None, profile: str | None = None, changes: tuple[str, ...] = (),
    **options: Any,
) -> PlanRequest:  # fmt: skip
    """The question; UserError with the number and the nearest legal one for whatever cannot be.

    profile: what the options are over; without one they say everything.
    """
    if profile is not None:
        from tui.cli.profile_request import request_of

        where = {"cluster": cluster, "partition": partition, "gpu": gpu, "gpus_per_node": gpus_per_node}
        return request_of(profile, changes, fixed, top, {**options, **where, "dropout": dropout})
    _say_what_is_missing(options, changes)
    if not gpu and not cluster:
        raise click.UsageError(
            "Say what to plan for: --gpu NAME or --cluster NAME.", click.get_current_context()
        )
    if partition and not cluster:
        raise click.UsageError("--partition needs --cluster.", click.get_current_context())
    node, name = (
        (None, None)
        if cluster is None
        else (_node_of_cluster(cluster, partition, gpu, gpus_per_node, options["gpus"]))
    )
    if dropout is not None:
        options["trainer"] = _with_dropout(options["trainer"], dropout)
    return planner.build_request(
        options.pop("model"),
        options.pop("gpus"),
        gpu=None if node else gpu,
        node=node,
        gpus_per_node=None if node else gpus_per_node,
        fix=fixed,
        top=top,
        cluster=name,
        **options,
    )


def _say_what_is_missing(options: dict[str, Any], changes: tuple[str, ...]) -> None:
    """Without a profile the model and the number of GPUs must be given."""
    context = click.get_current_context()
    for name in ("model", "gpus"):
        if options[name] is None:
            raise click.UsageError(f"Missing option '--{name}' (or name a profile).", context)
    if changes:
        raise click.UsageError("--set changes a profile, and none is named.", context)


def _with_dropout(trainer: str, dropout: float) -> Trainer:
    """The trainer with a dropout of its own. UserError for one that is no share."""
    if not 0 <= dropout < 1:
        raise UserError(
            f"The dropout {dropout:g} is no share.", "Give a number from 0 to below 1, such as 0.1."
        )
    return replace(parse_trainer(trainer), dropout=dropout)


def _node_of_cluster(
    cluster: str, partition: str | None, gpu: str | None, gpus_per_node: int | None, gpus: int
) -> tuple[Node, str]:
    """The node type of a cluster's partition, and the cluster's own name; a note when it has fewer GPUs than asked."""
    from gpt_tune import clusters
    from gpt_tune.profiles import sites
    from gpt_tune.profiles.schema import Profile, Resources
    from gpt_tune.workflows.machine import machine_of

    found = clusters.discover(cluster)
    site = sites.load(found.name) or sites.guess(found)
    resources = Resources(partition=partition or "", gpu=gpu or "", gpus_per_node=gpus_per_node)
    machine = machine_of(Profile(resources=resources), site, found)
    node = machine.node
    if node is None:
        where = f"partition {partition} of {found.name}" if partition else f"cluster {found.name}"
        raise UserError(f"No GPU type is known for {where}.", "Give --gpu, for example h100 or p6-b200.")
    if machine.partition is not None and 0 < machine.partition.gpus_total < gpus:
        have = machine.partition.gpus_total
        say(
            f"note: {gpus} GPUs are planned, and partition {machine.partition.name} of {found.name} has only {have}."
        )
    return node, found.name
