"""Owns what fine-tuning's own answers mean beside each other: batch, layout and model, and taking over a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpt_tune.errors import UserError
from gpt_tune.planner.types import Plan, PlanRequest
from gpt_tune.profiles.build import value_at
from gpt_tune.profiles.schema import Finetune, Profile
from gpt_tune.recipes import qlora_layout, qlora_model
from gpt_tune.workflows.draft import Draft, Problem
from gpt_tune.workflows.machine import machine_of
from gpt_tune.workflows.request import plan_request, tunes

# Answers of which two leave the third no choice.
BATCH_KEYS = (
    "training.global_batch_size",
    "finetune.micro_batch_size",
    "finetune.gradient_accumulation_steps",
)
CHOSEN = "chosen on the plan step"


def model_of(draft: Draft) -> str:
    """The model a draft trains: of a fine-tuning job the one that the weights are of, where that is known."""
    return qlora_model.settled(draft.profile).model.id


def trained_model(profile: Profile) -> str:
    """What a profile trains, in a word: fine-tuning weights of no known shape, these."""
    if not tunes(profile):
        return profile.model.id
    known = qlora_model.known(profile)
    return (known.id if known is not None else profile.finetune.weights).rstrip("/").rpartition("/")[2]


def refuse_contradiction(draft: Draft) -> None:
    """UserError for a batch that micro batch, accumulation and GPUs do not make."""
    cluster = None if draft.plan_only else draft.cluster
    qlora_layout.batch_of(draft.profile, machine_of(draft.profile, draft.site, cluster).gpus)


def tuning_problems(draft: Draft, ranks: int) -> list[Problem]:
    """What stands against fine-tuning by these numbers, at the question that cures it."""
    if not tunes(draft.profile):
        return []
    try:
        qlora_layout.fixed_of(draft.profile)
        qlora_layout.batch_of(draft.profile, ranks)
    except UserError as error:
        return [Problem("training", "training.global_batch_size", str(error))]
    return []


def without_rival_layout(profile: Profile, key: str) -> Profile:
    """A layout key that was fixed gives way to the fine-tuning setting of the same meaning that is answered."""
    rivals = [layout for layout, setting in qlora_layout.KEYS.items() if setting == key]
    if not rivals or not profile.layout.fixed:
        return profile
    fixed = {k: v for k, v in profile.layout.fixed.items() if k not in rivals}
    return replace(profile, layout=replace(profile.layout, fixed=fixed))


def freed(profile: Profile, layout_keys: Iterable[str]) -> Profile:
    """The profile with its own settings of these layout keys left open."""
    open_, tune = Finetune(), profile.finetune
    for key in layout_keys:
        name = qlora_layout.KEYS.get(key, "").partition(".")[2]
        tune = replace(tune, **{name: getattr(open_, name)}) if name else tune
    return replace(profile, finetune=tune)


def tuning_settings(
    draft: Draft, profile: Profile, said: Mapping[str, str]
) -> tuple[Profile, dict[str, str]]:
    """A job's settings and where they come from, with the model that the weights are of and the layout chosen."""
    known = qlora_model.known(profile)
    chosen = [k for k in qlora_layout.KEYS.values() if value_at(profile, k) != value_at(draft.profile, k)]
    said = {**said, **dict.fromkeys(chosen, CHOSEN)}
    return qlora_model.settled(profile), {**said, "model.id": known.why} if known and known.why else said


def tuned(draft: Draft, plan: Plan, asked: PlanRequest | None) -> Draft:
    """The draft with what it names itself turned to a plan's numbers; what it leaves open stays the planner's.

    asked: the question that the plan answers, where GPUs, batch or length were turned too. UserError when the draft's
    machine cannot take one of them.
    """
    from gpt_tune.workflows.answers import put  # answers looks at contradictions here

    before = plan_request(draft.profile, draft.site, None if draft.plan_only else draft.cluster)
    profile = qlora_layout.with_layout(draft.profile, qlora_layout.flat_of(plan.layout), open_too=False)
    turned = [k for k in qlora_layout.KEYS.values() if value_at(profile, k) != value_at(draft.profile, k)]
    draft = replace(draft, profile=profile, origins={**draft.origins, **dict.fromkeys(turned, CHOSEN)})
    if asked is None:
        return draft
    for key, old, new in (
        ("resources.gpus", before.gpus, asked.gpus),
        ("model.seq_length", before.seq_length, asked.seq_length),
    ):
        if old != new:
            draft = put(draft, key, str(new))
    whole, given = asked.global_batch_size, draft.profile.training.global_batch_size
    if (given is None and qlora_layout.batch_of(draft.profile, asked.gpus) == whole) or given == whole:
        return draft
    return put(draft, "training.global_batch_size", str(whole))
