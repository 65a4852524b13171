"""Owns what choosing a layout means for the profile: one that is not the planner's first is fixed there."""

from __future__ import annotations

from dataclasses import replace

from gpt_tune.layouts.choices import ENGINE
from gpt_tune.profiles.schema import LayoutChoice, ModelChoice, Profile
from gpt_tune.workflows.draft import Draft


def profile_of(draft: Draft) -> Profile:
    """What is submitted and saved: the choices, with the chosen layout in them where the planner would choose another.

    The draft itself keeps only what was fixed before: going back to the plan offers every layout again.
    """
    if draft.recipe == "smoke":
        return without_model(draft.profile)
    if draft.plan is None or draft.plan.rank == 1:
        return draft.profile
    from gpt_tune.workflows.resubmit import flat_layout  # reads logs, and is slow to load

    fixed = flat_layout(draft.plan.layout.to_json())
    if draft.plan.layout.precision == "fp8":  # the training step's own precision cannot say it
        fixed["precision"] = "fp8"
    if ENGINE in draft.profile.layout.fixed:  # no part of a layout, but of what the layout was judged for
        fixed[ENGINE] = draft.profile.layout.fixed[ENGINE]
    return replace(draft.profile, layout=LayoutChoice(fixed=fixed))


def without_model(profile: Profile) -> Profile:
    """A check's choices without a model chosen for another job: it trains its own."""
    return replace(profile, model=ModelChoice())


def asks_model(recipe: str) -> bool:
    """Whether a job trains a model that the user chooses: the check has its own, a command is its own affair."""
    return recipe not in ("smoke", "custom")


def unfixed(draft: Draft) -> Draft:
    """The draft without a layout that a profile or an earlier run fixed: the planner is free again."""
    origins = {k: v for k, v in draft.origins.items() if not k.startswith("layout.fixed")}
    profile = replace(draft.profile, layout=LayoutChoice())
    return replace(draft, profile=profile, origins=origins, plan=None)


def fixed_by(draft: Draft) -> str:
    """Who fixed keys of the layout, in words: `profile night fixes 9 keys`; "" when nobody did."""
    fixed = draft.profile.layout.fixed
    if not fixed:
        return ""
    said = sorted({words for key, words in draft.origins.items() if key.startswith("layout.fixed")})
    who = ", ".join(said) or (draft.base and f"{draft.base}") or "the profile"
    return f"{who} fixes {len(fixed)} of its keys" if len(fixed) > 1 else f"{who} fixes {next(iter(fixed))}"
