"""Owns what choosing a layout means for the profile: one that is not the planner's first is fixed there."""

from __future__ import annotations

from dataclasses import replace

from gpt_tune.layouts.choices import ENGINE
from gpt_tune.profiles.schema import LayoutChoice, ModelChoice, Profile
from gpt_tune.recipes import qlora_layout
from gpt_tune.workflows.draft import YOU, Draft
from gpt_tune.workflows.request import tunes


def profile_of(draft: Draft) -> Profile:
    """What is submitted and saved: the choices, with the chosen layout in them where the planner would choose another.

    The draft itself keeps only what was fixed before: going back to the plan offers every layout again.
    """
    if draft.recipe == "smoke":
        return without_model(draft.profile)
    if draft.plan is None or draft.plan.rank == 1:
        return draft.profile
    if tunes(draft.profile):
        return qlora_layout.with_layout(draft.profile, qlora_layout.flat_of(draft.plan.layout))
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
    fixing = ("layout.fixed", *(qlora_layout.KEYS.values() if tunes(draft.profile) else ()))
    origins = {k: v for k, v in draft.origins.items() if not k.startswith(fixing)}
    profile = replace(draft.profile, layout=LayoutChoice())
    profile = qlora_layout.opened(profile) if tunes(profile) else profile
    return replace(draft, profile=profile, origins=origins, plan=None)


def fixed_by(draft: Draft) -> str:
    """Who fixed keys of the layout, in words: `profile night fixes 9 keys`; "" when nobody did."""
    fixed = dict(draft.profile.layout.fixed)
    keys: tuple[str, ...] = ("layout.fixed",)
    if tunes(draft.profile):
        named = qlora_layout.named_settings(draft.profile.finetune)
        fixed, keys = {**fixed, **named}, (*keys, *named)
    if not fixed:
        return ""
    said = sorted({words for key, words in draft.origins.items() if key.startswith(keys)})
    who = ", ".join(said) or (draft.base and f"{draft.base}") or "the profile"
    fixes = f"{who} fix" if who == YOU else f"{who} fixes"
    return f"{fixes} {len(fixed)} of its keys" if len(fixed) > 1 else f"{fixes} {next(iter(fixed))}"
