"""Owns what a sweep tries: every combination of varied settings, or the planner's best layouts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpt_tune.errors import UserError
from gpt_tune.layouts.choices import CHOICES, parse_fix
from gpt_tune.profiles import settings
from gpt_tune.profiles.schema import LayoutChoice, Profile

MOST_TASKS = 64
STEPS = 20  # of one task: five are warm-up, the rest tell the step time to a few per cent
_SHORT_LAYOUT_KEYS = ("recompute", "gradient_accumulation_dtype", "pipeline_engine")


@dataclass(frozen=True, slots=True)
class Task:
    """One combination. values: what is different, in the words of the command line.

    problem: why the profile cannot have these values, "" when it can.
    """

    number: int
    values: Mapping[str, str]
    profile: Profile
    problem: str = ""

    @property
    def label(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self.values.items()) or "as it is"


def tasks(profile: Profile, vary: Sequence[str], steps: int = STEPS) -> list[Task]:
    """Every combination of `KEY=a,b,c` texts, as short runs. UserError for a bad key, value or number."""
    axes = [_axis(text) for text in vary]
    keys = [key for key, _ in axes]
    doubled = next((k for k in keys if keys.count(k) > 1), None)
    if doubled:
        raise UserError(f"{doubled} is varied twice.", "Give all its values at once: --vary KEY=a,b,c.")
    count = 1
    for _, values in axes:
        count *= len(values)
    if count > MOST_TASKS:
        raise UserError(
            f"That grid has {count} combinations; a sweep takes at most {MOST_TASKS}.", "Vary fewer values."
        )
    short = shortened(profile, steps)
    found = []
    for number, combination in enumerate(itertools.product(*(values for _, values in axes)), 1):
        chosen = dict(zip(keys, combination))
        found.append(_task(number, chosen, short))
    if all(task.problem for task in found):
        _changed(short, found[0].values)  # raises: a key or all values are wrong
    return found


def _task(number: int, values: Mapping[str, str], short: Profile) -> Task:
    try:
        return Task(number, values, _changed(short, values))
    except UserError as error:
        return Task(number, values, short, str(error))


def shortened(profile: Profile, steps: int) -> Profile:
    """The profile as a run of a few steps that saves nothing."""
    if not 2 <= steps <= 10_000:
        raise UserError(f"{steps} steps a task are not possible.", "Give --steps from 2 to 10000.")
    training = replace(
        profile.training, iterations=steps, tokens=None, checkpoint_interval=None, checkpoint_dir="", load="",
        eval_iterations=0,
    )  # fmt: skip
    changes: dict[str, object] = {"training": training, "smoke": replace(profile.smoke, steps=steps)}
    if hasattr(profile, "finetune"):
        changes["finetune"] = replace(profile.finetune, steps=steps)
    return replace(profile, **changes)  # type: ignore[arg-type]


def is_layout_key(key: str) -> bool:
    """Whether a key is the layout's (tensor_parallel, recompute.layers) and not a profile's path."""
    return key in CHOICES or key in _SHORT_LAYOUT_KEYS


def _axis(text: str) -> tuple[str, list[str]]:
    key, equals, rest = text.partition("=")
    key = key.strip()
    values = [v.strip() for v in rest.split(",")]
    if not equals or not key or not all(values):
        raise UserError(
            f"--vary {text!r} is not KEY=a,b,c.", "Write for example --vary tensor_parallel=2,4,8."
        )
    doubled = next((v for v in values if values.count(v) > 1), None)
    if doubled:
        raise UserError(f"--vary {key} has {doubled} twice.", "Give each value once.")
    return key, values


def _changed(profile: Profile, values: Mapping[str, str]) -> Profile:
    layout = [f"{k}={v}" for k, v in values.items() if is_layout_key(k)]
    other = [f"{k}={v}" for k, v in values.items() if not is_layout_key(k)]
    if layout:
        fixed = {**profile.layout.fixed, **parse_fix(layout)}
        profile = replace(profile, layout=LayoutChoice(fixed=fixed))
    return settings.with_settings(profile, other, "--vary") if other else profile
