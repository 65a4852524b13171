"""Owns turning a profile and the options over it into the planner's question, for plan and estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from gpt_tune.errors import UserError
from gpt_tune.layouts.choices import parse_fix
from gpt_tune.planner.objective import batch_sizes, checked
from gpt_tune.planner.types import PlanRequest
from gpt_tune.profiles.schema import LayoutChoice, Profile

# Options that are settings of a profile.
_SETTINGS = {
    "cluster": "cluster", "partition": "resources.partition", "gpu": "resources.gpu", "gpus": "resources.gpus",
    "gpus_per_node": "resources.gpus_per_node", "model": "model.id", "seq_length": "model.seq_length",
    "dropout": "training.dropout",
}  # fmt: skip


def request_of(
    name: str, changes: Sequence[str], fixed: Sequence[str], top: int, options: Mapping[str, Any]
) -> PlanRequest:
    """A profile's question with options over its settings. UserError for what cannot be."""
    from gpt_tune.profiles import store
    from gpt_tune.workflows import request as requests

    if click.get_current_context().get_parameter_source("trainer") is click.core.ParameterSource.COMMANDLINE:
        raise UserError(
            "--trainer and a profile are given: a profile's recipe is its trainer.",
            "Change that: --set recipe=NAME.",
        )
    given = [f"{key}={options[n]}" for n, key in _SETTINGS.items() if options.get(n) is not None]
    given += ["resources.node="] if options.get("gpu") else []
    profile = _fixed(store.load_layered(name, [*given, *changes]).profile, fixed, options.get("precision"))
    site, cluster = _where(profile)
    requests.refuse_unplanned(profile, site, cluster)
    sizes: tuple[int, ...] = ()
    if options.get("global_batch_size") is not None:
        gpus = requests.plan_request(profile, site, cluster).gpus
        sizes = batch_sizes(options["global_batch_size"], gpus)
        profile = replace(profile, training=replace(profile.training, global_batch_size=sizes[0]))
    request = requests.plan_request(profile, site, cluster, top)
    aim, target, share = checked(
        options.get("objective", "step"), options.get("target_seconds"), options.get("within", 0.05)
    )
    more = sizes if len(sizes) > 1 else ()
    return replace(request, objective=aim, target_seconds=target, within=share, global_batch_sizes=more)


def _fixed(profile: Profile, fixed: Sequence[str], precision: str | None) -> Profile:
    """The profile with layout keys fixed; what it says of the same keys itself gives way."""
    from gpt_tune.workflows.request import tunes
    from gpt_tune.workflows.tuning import freed

    keys = parse_fix(fixed) | ({"precision": precision} if precision else {})
    if tunes(profile):
        profile = freed(profile, keys)
    return replace(profile, layout=LayoutChoice(fixed={**profile.layout.fixed, **keys}))


def _where(profile: Profile) -> tuple[Any, Any]:
    """Site and cluster where the profile names one; else its GPU or node type alone says what to plan for."""
    if not profile.cluster:
        return None, None
    from gpt_tune import clusters
    from gpt_tune.profiles import sites

    found = clusters.discover(profile.cluster)
    return sites.load(found.name) or sites.guess(found), found
