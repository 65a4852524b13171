"""Owns ablation ladders: rungs that each add something to the one before, run as a sweep and compared in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpt_tune import recipes, strict, toml
from gpt_tune.errors import UserError, shown, unknown_name
from gpt_tune.layouts.choices import parse_fix
from gpt_tune.profiles import settings
from gpt_tune.profiles.build import value_at
from gpt_tune.profiles.schema import LayoutChoice, Profile
from gpt_tune.recipes import qlora_layout
from gpt_tune.rendering import single_line
from gpt_tune.resources import data_dir, existing_file
from gpt_tune.workflows import sweep as sweeps
from gpt_tune.workflows.flat_layout import flat_layout
from gpt_tune.workflows.request import tunes
from gpt_tune.workflows.sweeping import grid
from gpt_tune.workflows.sweeping.grid import Task

# The key under which a rung's name stands in a sweep's tasks.
KEY = "rung"
_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Rung:
    """One step up. set: KEY=VALUE. take: KEY=OTHER, the value of another key. reset: keys back to the profile's own."""

    name: str
    what: str = ""
    set: tuple[str, ...] = ()
    take: tuple[str, ...] = ()
    reset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rungs from the ground up. recipe: the one it is made for, "" for any."""

    name: str
    rung: tuple[Rung, ...]
    description: str = ""
    recipe: str = ""
    source: str = ""


def names() -> list[str]:
    """The ladders that come with gpt-tune."""
    return sorted(path.stem for path in (data_dir("profiles") / "ladders").glob("*.toml"))


def load(name: str) -> Ladder:
    """A ladder by its name, or from a TOML file of the user's. UserError says what is wrong with it."""
    file = existing_file(name) if "/" in name or name.endswith(".toml") else None
    if file is None:
        if name not in names():
            raise unknown_name("ladder", name, names())
        file = data_dir("profiles") / "ladders" / f"{name}.toml"
    ladder = strict.from_dict(Ladder, {"name": Path(file).stem, **toml.load(file)}, str(file))
    _check(ladder, str(file))
    return ladder


def _check(ladder: Ladder, where: str) -> None:
    if not 2 <= len(ladder.rung) <= grid.MOST_TASKS:
        raise UserError(
            f"{where} has {len(ladder.rung)} rungs.", f"A ladder has 2 to {grid.MOST_TASKS}: [[rung]] tables."
        )
    seen: set[str] = set()
    for rung in ladder.rung:
        single_line(rung.name, f"A rung's name in {where}")
        if not rung.name.strip() or len(rung.name) > _LONGEST_NAME or rung.name in seen:
            raise UserError(
                f"{where} has a rung named {shown(rung.name)}.",
                f"Names are different, not empty, and have at most {_LONGEST_NAME} characters.",
            )
        seen.add(rung.name)


def tasks(profile: Profile, ladder: Ladder, steps: int = grid.STEPS) -> list[Task]:
    """A short run for each rung. A rung that cannot run says why, and the next one builds on the one before it."""
    if ladder.recipe and profile.recipe != ladder.recipe:
        raise UserError(
            f"The ladder {ladder.name} is for recipe {ladder.recipe}, and the profile has {profile.recipe}.",
            f"Take a profile with recipe = {ladder.recipe!r}.",
        )
    start = standing = grid.shortened(profile, steps)
    found = []
    for number, rung in enumerate(ladder.rung, 1):
        values = {KEY: rung.name}
        try:
            standing = _climbed(standing, start, rung)
            found.append(Task(number, values, standing))
        except UserError as error:
            found.append(Task(number, values, standing, str(error)))
            if rung.take:
                # What it takes is missing; what it sets still holds for the rungs above.
                with suppress(UserError):
                    standing = _climbed(standing, start, replace(rung, take=()))
    return found


def _climbed(standing: Profile, start: Profile, rung: Rung) -> Profile:
    """The profile one rung up. UserError when it cannot run so."""
    for key in rung.reset:
        standing = _with(standing, key, _value(start, key))
    for text in rung.take:
        key, _, other = text.partition("=")
        value = _value(start, other)
        if value in ("", None):
            raise UserError(
                f"{other} is empty, and {shown(rung.name)} takes its {key} from it.", f"Set {other}."
            )
        standing = _with(standing, key, value)
    layout = [s for s in rung.set if grid.is_layout_key(s.partition("=")[0])]
    if layout:
        fixed = {**standing.layout.fixed, **parse_fix(layout)}
        standing = replace(standing, layout=LayoutChoice(fixed=fixed))
    standing = settings.with_settings(standing, [s for s in rung.set if s not in layout])
    for sentence in recipes.get(standing.recipe).problems(standing):
        raise UserError(sentence, "")
    return standing


def _value(profile: Profile, key: str) -> Any:
    settings.type_of(Profile, key, "a ladder")  # a key that does not exist is named
    return value_at(profile, key)


def _with(profile: Any, key: str, value: Any) -> Any:
    """The profile with one key at another value, of any type."""
    head, _, rest = key.partition(".")
    if isinstance(profile, Mapping):
        return {**profile, key: value}
    return replace(profile, **{head: _with(getattr(profile, head), rest, value) if rest else value})


def prepare(profile: Profile, name: str, steps: int = grid.STEPS, at_once: int | None = None) -> sweeps.Sweep:
    """A sweep of a ladder's rungs, everything decided. UserError when fewer than two rungs can run.

    at_once: None runs one rung at a time, since rungs at work beside each other share network and storage.
    """
    ladder = load(name)
    rungs = tasks(profile, ladder, steps)
    able = [task for task in rungs if not task.problem]
    if len(able) < 2:
        problem = next((task.problem for task in rungs if task.problem), "")
        raise UserError(
            f"Only {len(able)} of {len(rungs)} rungs can run, and a comparison needs two: {problem}", ""
        )
    if recipes.planned(profile.recipe):
        rungs = _on_one_layout(profile, ladder, steps, able[0])
    return sweeps.prepare_tasks(profile, rungs, at_once or 1)


def _on_one_layout(profile: Profile, ladder: Ladder, steps: int, first: Task) -> list[Task]:
    """The rungs on the layout that the planner gives the first: another one on each would be compared as well."""
    plan = next(iter(sweeps.prepare_tasks(profile, [first]).launches.values())).plan
    layout = flat_layout(plan.to_json()["layout"]) if plan is not None else {}
    if tunes(profile):
        return tasks(qlora_layout.with_layout(profile, layout), ladder, steps)
    pinned = replace(profile, layout=LayoutChoice(fixed={**layout, **profile.layout.fixed}))
    return tasks(pinned, ladder, steps)


def is_ladder(values: Sequence[Mapping[str, str]]) -> bool:
    """Whether a sweep's tasks are the rungs of a ladder."""
    return bool(values) and all(set(v) == {KEY} for v in values)
