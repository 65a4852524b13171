"""Owns making a new run out of an old one: the same choices, or with the change that cures what ended it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpt_tune.diagnosis.types import Finding
from gpt_tune.errors import UserError
from gpt_tune.ledger import RunRecord
from gpt_tune.profiles import settings
from gpt_tune.profiles.schema import LayoutChoice, Profile
from gpt_tune.recipes import qlora_layout
from gpt_tune.workflows.cures import Change, changes_of, going_on, settings_of
from gpt_tune.workflows.exclude import Exclusion, offers
from gpt_tune.workflows.findings import diagnosis_of
from gpt_tune.workflows.flat_layout import flat_layout
from gpt_tune.workflows.records import profile_of
from gpt_tune.workflows.request import tunes

__all__ = ["Cure", "Resubmission", "again", "cure", "fix_of", "flat_layout"]

_LAYOUT_RESTS_ON = (
    "layout.", "model.", "resources.", "recipe", "training.precision", "training.global_batch_size",
    "trainer.deepspeed", *qlora_layout.KEYS.values(), "finetune.weights", "finetune.base_weights",
    "finetune.double_quantisation", "finetune.lora_", "finetune.optimizer",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Resubmission:
    """The profile of the new run, and what is different from the old one, in words.

    exclusions: nodes that it leaves out because of the old run; keeping them is the caller's to decide.
    """

    profile: Profile
    changes: tuple[str, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()


def again(record: RunRecord, with_fix: bool = False, more: tuple[str, ...] = ()) -> Resubmission:
    """The old run's choices with its layout kept. with_fix: changed by what its log says is wrong.

    more: KEY=VALUE changes on top. UserError when a fix is asked for and none is known.
    """
    profile = profile_of(record)
    layout = dict((record.plan or {}).get("layout") or {})
    fix, exclusions = _cure_of(record)[:2] if with_fix else ({}, ())
    changes = [*(f"{key}={value}" for key, value in fix.items()), *more]
    # A change of what the layout rests on may contradict the old layout: the planner finds a new one.
    kept = {} if any(c.startswith(_LAYOUT_RESTS_ON) for c in changes) else flat_layout(layout)
    if tunes(profile):
        profile = qlora_layout.with_layout(profile, kept) if layout else qlora_layout.as_unplanned(profile)
    else:
        profile = replace(profile, layout=LayoutChoice(fixed={**kept, **profile.layout.fixed}))
    return Resubmission(settings.with_settings(profile, changes), tuple(changes), exclusions)


def fix_of(record: RunRecord) -> dict[str, str]:
    """The settings that cure a run's root cause, by what its log says."""
    return dict(_cure_of(record)[0])


@dataclass(frozen=True, slots=True)
class Cure:
    """What a run's fix would change, to be looked at before anything is made. new_layout: the planner chooses one."""

    root: Finding
    changes: tuple[Change, ...]
    exclusions: tuple[Exclusion, ...] = ()
    new_layout: bool = False


def cure(record: RunRecord) -> Cure:
    """The cure of a run's root cause. UserError when nothing is wrong, or nothing is known that helps."""
    settings, exclusions, root = _cure_of(record)
    planned = bool(record.plan) and any(key.startswith(_LAYOUT_RESTS_ON) for key in settings)
    fixed = any(key.startswith("layout.fixed.") or key in qlora_layout.KEYS.values() for key in settings)
    return Cure(root, changes_of(record, settings), exclusions, planned and not fixed)


def _cure_of(record: RunRecord) -> tuple[dict[str, str], tuple[Exclusion, ...], Finding]:
    """Settings that cure a run's root cause, and broken nodes that they leave out."""
    result = diagnosis_of(record)
    root = result.root_cause
    if root is None:
        raise UserError(
            f"Nothing in the log of {record.run_id} says what was wrong.",
            "Resubmit without --with-fix, or change it with --set.",
        )
    if record.state == "CANCELLED" and root.id == "F77":
        raise UserError(f"Nothing broke: run {record.run_id} was cancelled.", going_on(record))
    broken = tuple(offers(record, result.findings))
    if broken and not root.changes:
        already = profile_of(record).site.exclude_nodes
        nodes = dict.fromkeys([*already, *(e.node for e in broken)])
        return {"site.exclude_nodes": ",".join(nodes)}, broken, root
    settings = settings_of(record, root)
    if not settings:
        raise UserError(f"{root.text} No setting cures that.", root.fix)
    return settings, (), root
