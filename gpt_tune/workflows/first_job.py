"""Owns which job a draft begins with while nobody has chosen one: one that can run here with every default."""

from __future__ import annotations

from dataclasses import replace

from gpt_tune.profiles.schema import Profile
from gpt_tune.workflows import defaults
from gpt_tune.workflows.draft import Draft
from gpt_tune.workflows.machine import has_gpus
from gpt_tune.workflows.trainer_here import trainer_folder, trainer_path, trainer_variable

TRAINER, CHECK = Profile().recipe, "smoke"
# Whoever set one of these wants the trainer, whatever is found here.
_OF_THE_TRAINER = ("model.", "trainer.", "training.", "layout.")


def with_job_that_can_run(draft: Draft) -> Draft:
    """The draft with the check for its job where the trainer could not run, unless the user or a profile chose."""
    if "recipe" in draft.origins or draft.plan_only:
        return draft
    recipe = TRAINER if _gpus_here(draft) and _trainer_known(draft) else CHECK
    if recipe == draft.recipe:
        return draft
    return replace(draft, profile=replace(draft.profile, recipe=recipe), plan=None)


def why_check(draft: Draft) -> str:
    """Why the check is the default where there are GPUs, and the way to the trainer, in a sentence; else ""."""
    if draft.recipe != CHECK or "recipe" in draft.origins or draft.cluster is None or not _gpus_here(draft):
        return ""
    folder, variable = trainer_folder(TRAINER), trainer_variable(TRAINER)
    return (
        f"No {folder} checkout found, so this is the one-minute check; to train, choose {TRAINER} "
        f"and give its folder (or set {variable})."
    )


def _gpus_here(draft: Draft) -> bool:
    machine = defaults.machine(draft)
    return has_gpus(draft.cluster, machine.partition if machine else None)


def _trainer_known(draft: Draft) -> bool:
    """Whether the trainer's folder is known, or the user's settings are about the trainer."""
    if draft.profile.trainer.path or any(key.startswith(_OF_THE_TRAINER) for key in draft.origins):
        return True
    return bool(trainer_path(TRAINER, draft.site))
