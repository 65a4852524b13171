"""Owns taking one answer: its type, its meaning beside the other answers, and what it makes void."""

from __future__ import annotations

from dataclasses import replace

from gpt_tune.errors import UserError, unknown_name
from gpt_tune.hardware import catalogue
from gpt_tune.hardware.sizes import nodes_of
from gpt_tune.jobs.preparing import check_local_size
from gpt_tune.models import catalogue as models
from gpt_tune.profiles import settings, sites
from gpt_tune.profiles.build import check_values
from gpt_tune.profiles.schema import Profile, Site
from gpt_tune.workflows.draft import PLAN_ONLY, YOU, Draft
from gpt_tune.workflows.elsewhere import without_other_clusters_choices
from gpt_tune.workflows.fields import SPECS, spec_of
from gpt_tune.workflows.first_job import with_job_that_can_run
from gpt_tune.workflows.machine import machine_of
from gpt_tune.workflows.options import options_of
from gpt_tune.workflows.request import tunes
from gpt_tune.workflows.tuning import BATCH_KEYS, refuse_contradiction, without_rival_layout


def planning_alone(draft: Draft) -> Draft:
    """The draft turned to planning for hardware that is not here."""
    resources = replace(draft.profile.resources, partition="")
    profile = replace(draft.profile, cluster="", resources=resources)
    if "recipe" not in draft.origins:
        profile = replace(profile, recipe=Profile().recipe)
    return replace(
        draft, profile=profile, plan_only=True, cluster=None, site=Site(), site_known=False, plan=None
    )


def check(draft: Draft, key: str, text: str) -> str | None:
    """What is wrong with an answer, in one sentence, or None. Cheap: fit for every key press."""
    try:
        _put(draft, key, text)
    except UserError as error:
        return str(error)
    return None


def put(draft: Draft, key: str, text: str) -> Draft:
    """The draft with one question answered. UserError when the answer cannot be taken."""
    changed = _put(draft, key, text)
    return replace(changed, plan=None) if _unplans(key) and changed != draft else changed


def _unplans(key: str) -> bool:
    """Whether an answer makes a chosen plan void."""
    return not key.startswith("site.") or key in ("site.node", "site.partition")


def _put(draft: Draft, key: str, text: str) -> Draft:
    text = text.strip()
    if key == "cluster":
        return _put_cluster(draft, text)
    try:
        _, spec = spec_of(key)
    except KeyError:
        raise unknown_name("question", key, [s.key for specs in SPECS.values() for s in specs]) from None
    if not text and spec.needed(draft):
        raise UserError(f"{spec.label} is required.", spec.help)
    origins = {**draft.origins, key: YOU}
    if key.startswith("site."):
        site = settings.with_value(draft.site, key[5:], text, "the site")
        _check_site(key, site)
        return with_job_that_can_run(replace(draft, site=site, origins=origins))
    profile = settings.with_value(draft.profile, key, text, "this run")
    profile = without_rival_layout(_without_rival(profile, key), key)
    if key == "resources.gpu" and profile.resources.gpu:
        profile = _for_other_nodes(draft, profile)
    changed = replace(draft, profile=profile, origins=origins)
    _check_meaning(changed, key)
    check_values(profile, "this run")
    return changed


def _put_cluster(draft: Draft, name: str) -> Draft:
    origins = {**draft.origins, "cluster": YOU}
    if name == PLAN_ONLY:
        return planning_alone(replace(draft, origins=origins))
    if name not in draft.clusters:
        raise unknown_name("cluster", name, (*draft.clusters, PLAN_ONLY))
    if not draft.plan_only and draft.cluster is not None and draft.cluster.name == name:
        return draft
    draft = without_other_clusters_choices(draft, name)
    profile = replace(draft.profile, cluster=name)
    return replace(draft, profile=profile, plan_only=False, cluster=None, plan=None, origins=origins)


def _without_rival(profile: Profile, key: str) -> Profile:
    """Iterations and tokens exclude each other: the one just answered stays."""
    training = profile.training
    if key == "training.iterations" and training.iterations is not None:
        training = replace(training, tokens=None)
    elif key == "training.tokens" and training.tokens is not None:
        training = replace(training, iterations=None)
    return replace(profile, training=training)


def _for_other_nodes(draft: Draft, profile: Profile) -> Profile:
    """A GPU or node type that is chosen takes the place of the node type that a profile names."""
    resources = replace(profile.resources, node="")
    if draft.origins.get("resources.gpus_per_node") != YOU:
        resources = replace(resources, gpus_per_node=None)
    return replace(profile, resources=resources)


def _check_site(key: str, site: Site) -> None:
    words = {"site.run_root": "run folder", "site.time_limit": "time limit"}.get(key)
    for sentence in sites.problems(site) if words else ():
        if words and words in sentence:
            raise UserError(sentence, "")
    if key == "site.node" and site.node:
        catalogue.get_node(site.node)


def _check_meaning(draft: Draft, key: str) -> None:
    """What a value's type cannot say: names that must exist, sizes that must fit."""
    profile, cluster = draft.profile, draft.cluster
    if tunes(profile) and key in BATCH_KEYS:
        refuse_contradiction(draft)
    elif key == "model.id":
        models.get(profile.model.id)
    elif key == "recipe":
        _check_recipe(draft)
    elif key == "resources.gpu" and profile.resources.gpu:
        catalogue.node_for(profile.resources.gpu)
    elif key.startswith("resources."):
        if cluster is not None:
            check_local_size(cluster, profile.resources.gpus)
        machine = machine_of(profile, draft.site, cluster)
        nodes_of(machine.gpus, machine.node_gpus)
        have = machine.partition.gpus_total if machine.partition else 0
        if have and machine.gpus > have:
            raise UserError(
                f"{machine.gpus} GPUs are more than partition {machine.partition.name} has ({have}).",  # type: ignore[union-attr]
                f"Take at most {have}.",
            )


def _check_recipe(draft: Draft) -> None:
    options = [o.value for o in options_of(draft, "recipe")]
    if draft.profile.recipe not in options:
        raise unknown_name("job", draft.profile.recipe, options)
