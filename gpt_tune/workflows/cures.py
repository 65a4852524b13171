"""Owns turning what broke a run into settings of the next one: less memory, more time, on from a checkpoint.

A finding's own changes come first; its action says what else would do. Nothing is submitted here.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpt_tune import clusters, planner
from gpt_tune.diagnosis.types import Finding
from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.ledger import RunRecord
from gpt_tune.planner.types import Plan
from gpt_tune.profiles import sites
from gpt_tune.profiles.build import value_at
from gpt_tune.profiles.schema import LayoutChoice, Profile
from gpt_tune.recipes import qlora_layout
from gpt_tune.schedulers import slurm_words
from gpt_tune.workflows import chain
from gpt_tune.workflows.flat_layout import flat_layout
from gpt_tune.workflows.records import profile_of
from gpt_tune.workflows.request import always_planned, plan_request, tunes

LESS = 0.92  # of the memory predicted for the layout that did not fit: its prediction was too low by an unknown part
LOOKED_AT = 60  # plans
TIMES = 2  # the limit that was too short


@dataclass(frozen=True, slots=True)
class Change:
    """One setting of the next run. before: as the old run had it, None where it had none."""

    key: str
    before: str | None
    after: str


def settings_of(record: RunRecord, finding: Finding) -> dict[str, str]:
    """The settings that cure a finding; {} when none is known. UserError when what would cure it is impossible."""
    if finding.changes:
        return {str(key): str(value) for key, value in finding.changes.items()}
    if finding.action == "less_memory":
        return _less_memory(record)
    if finding.action == "more_time":
        return {**_more_time(record), **_resume(record)}
    if finding.action == "resume":
        return _resume(record)
    return {}


def going_on(record: RunRecord) -> str:
    """How a run that nothing broke is started again, in a sentence."""
    # A smoke job keeps its checkpoints with itself, and what a job of the user's own keeps is theirs to know.
    ours = record.recipe not in ("smoke", "custom")
    folder = _resume(record).get("training.checkpoint_dir") if ours else None
    again = f"gpt-tune resubmit {record.run_id}"
    if folder is None:
        return f"Start it again as it was: {again}"
    return f"From its last checkpoint: {again} --set training.checkpoint_dir={shlex.quote(folder)}"


def changes_of(record: RunRecord, settings: Mapping[str, str]) -> tuple[Change, ...]:
    """The settings beside what the old run had; those that change nothing are left out."""
    profile = profile_of(record)
    flat = flat_layout((record.plan or {}).get("layout") or {})
    layout = {f"layout.fixed.{key}": _words(value) for key, value in flat.items()}
    if tunes(profile):
        layout |= {key: _words(value) for key, value in qlora_layout.values_of(flat).items()}
    found = []
    for key, after in settings.items():
        before = layout.get(key)
        if before is None:
            before = _value(profile, key)
        if before != after:
            found.append(Change(key, before, after))
    return tuple(found)


def _value(profile: Profile, key: str) -> str | None:
    try:
        value = value_at(profile, key)
    except (AttributeError, KeyError):
        return None
    return None if value is None or value == "" else _words(value)


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return ",".join(str(v) for v in value)
    return str(value)


# --- less memory


def _less_memory(record: RunRecord) -> dict[str, str]:
    """The planner's best layout that needs clearly less than the one that did not fit."""
    profile = profile_of(record)
    if not always_planned(profile.recipe) and not (tunes(profile) and record.plan):
        return _smaller_batch(profile)
    old = (record.plan or {}).get("memory") or {}
    needed = old.get("device_gib")
    if not isinstance(needed, (int, float)) or isinstance(needed, bool):
        raise UserError(
            f"{record.run_id} was not planned: what its layout needs is not known.",
            "Plan it anew (`gpt-tune plan`) and choose a layout that needs less.",
        )
    request = plan_request(_open_layout(profile, record.gpus), sites.load(record.cluster), top=LOOKED_AT)
    plan = next((p for p in planner.search(request).plans if _fits(p, float(needed))), None)
    if plan is None:
        raise UserError(
            f"No layout for {record.gpus} GPUs needs clearly less than the {needed:.0f} GiB of the last one.",
            "Use more GPUs, a shorter sequence, or GPUs with more memory.",
        )
    kept = flat_layout((record.plan or {}).get("layout") or {})
    fresh = flat_layout(plan.layout.to_json())
    if tunes(profile):
        return {key: _words(value) for key, value in qlora_layout.values_of(fresh).items()}
    return {f"layout.fixed.{k}": _words(v) for k, v in fresh.items() if k in kept or v != _default_of(k)}


def _default_of(key: str) -> object:
    from gpt_tune.layouts.layout import Layout

    return flat_layout(Layout().to_json()).get(key)


def _fits(plan: Plan, needed: float) -> bool:
    memory = plan.memory
    return memory.device_gib <= LESS * needed and (
        memory.limit_gib is None or memory.high_gib <= memory.limit_gib
    )


def _open_layout(profile: Profile, gpus: int) -> Profile:
    """The choices without a layout: the one that did not fit must not be kept, and a step keeps its batch."""
    if tunes(profile):
        batch = qlora_layout.batch_of(profile, gpus)
        training = replace(profile.training, global_batch_size=batch)
        profile = replace(qlora_layout.opened(profile), training=training)
    return replace(profile, layout=LayoutChoice())


def _smaller_batch(profile: Profile) -> dict[str, str]:
    """Fine-tuning: half the micro batch, twice the accumulation."""
    size = profile.finetune.micro_batch_size or qlora_layout.DEFAULT_MICRO_BATCH
    if profile.recipe not in ("qlora", "llama2-finetune") or size < 2:
        raise UserError(
            "The smallest micro batch did not fit either.", "Use a shorter sequence or GPUs with more memory."
        )
    steps = profile.finetune.gradient_accumulation_steps or qlora_layout.DEFAULT_ACCUMULATION
    return {
        "finetune.micro_batch_size": str(size // 2),
        "finetune.gradient_accumulation_steps": str(steps * 2),
    }


# --- more time, and on from where it was


def _more_time(record: RunRecord) -> dict[str, str]:
    """Twice the limit, as far as the partition allows."""
    had = slurm_words.seconds(profile_of(record).site.time_limit)
    most, default = _limits(record)
    had = had or default or most
    if had is None:
        raise UserError("What time limit the job had is not known.", "Set it: --set site.time_limit=8:00:00")
    wanted = had * TIMES if most is None else min(had * TIMES, most)
    if wanted <= had:
        raise UserError(
            f"The partition allows no more than the {slurm_words.duration(had)} that the job had.",
            "`gpt-tune submit --until-done` goes on in a chain of jobs, each from the last checkpoint.",
        )
    return {"site.time_limit": slurm_words.duration(wanted)}


def _limits(record: RunRecord) -> tuple[int | None, int | None]:
    """(most, default) seconds that the run's partition gives; None where it does not say."""
    try:
        partitions = clusters.discover(record.cluster).partitions
    except UserError:
        return None, None
    here = next((p for p in partitions if p.name == record.partition), None)
    return (here.time_limit_seconds, here.default_time_seconds) if here is not None else (None, None)


def _resume(record: RunRecord) -> dict[str, str]:
    """The old run's checkpoints as the new run's, where there are any: it goes on from the newest."""
    folder = chain.folder_of(record)
    try:
        newest = chain.newest_checkpoint(clusters.connect(record.cluster).files, folder)
    except SchedulerError:
        newest = None
    return {"training.checkpoint_dir": folder} if newest is not None else {}
