"""Owns moving a draft to another cluster: what was chosen for the one before does not belong there."""

from __future__ import annotations

from dataclasses import replace

from gpt_tune.profiles.build import value_at
from gpt_tune.profiles.schema import Resources, Site
from gpt_tune.workflows.draft import YOU, Draft

# How each is said: the value stands in it.
_WORDS = {
    "resources.partition": "partition {}",
    "resources.gpus": "{} GPUs",
    "resources.gpus_per_node": "{} GPUs a node",
    "resources.node": "node type {}",
    "resources.gpu": "GPU {}",
}


def without_other_clusters_choices(draft: Draft, name: str) -> Draft:
    """The draft without the size, partition and site chosen for another cluster than `name`; draft.left says what.

    Chosen by the user, or by the run or profile that the draft started from. Settings for every cluster stay.
    """
    before = draft.profile.cluster
    if draft.plan_only or before in ("", name):
        return replace(draft, left="")
    gone = [key for key in _WORDS if value_at(draft.profile, key) and _of_that_cluster(draft, key)]
    resources = draft.profile.resources
    plain = Resources()
    for key in gone:
        field = key.partition(".")[2]
        resources = replace(resources, **{field: getattr(plain, field)})
    site = Site() if draft.base else draft.profile.site
    dropped_site = site != draft.profile.site
    origins = {
        k: words
        for k, words in draft.origins.items()
        if k not in gone and not (dropped_site and k.startswith("site."))
    }
    words = [_WORDS[key].format(value_at(draft.profile, key)) for key in gone]
    words += ["its site"] if dropped_site else []
    said = f"Chosen for {before} and left out on {name}: {', '.join(words)}." if words else ""
    profile = replace(draft.profile, resources=resources, site=site)
    return replace(draft, profile=profile, origins=origins, left=said)


def _of_that_cluster(draft: Draft, key: str) -> bool:
    return bool(draft.base) or draft.origins.get(key) == YOU
