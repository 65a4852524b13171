"""Owns the list of all images, built or fetched, and what one is asked: its parts, its problems, its files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpt_tune.containers import catalogue, choices, imported, pairs, render
from gpt_tune.containers.pairs import Problem
from gpt_tune.containers.parts import Part
from gpt_tune.errors import unknown_name
from gpt_tune.recipes.base import RenderedFile


@dataclass(frozen=True, slots=True)
class Entry:
    """An image with every version decided. script: the job that makes its file. base, efa, nccl: for a list."""

    name: str
    title: str
    script: str
    base: str
    efa: str
    nccl: str
    parts: tuple[Part, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    data: dict[str, Any]
    source: choices.Container | imported.Imported

    def files(self, folder: str) -> tuple[RenderedFile, ...]:
        """Every file of the folder. UserError for versions that do not work together."""
        if isinstance(self.source, imported.Imported):
            return imported.files(self.source, folder)
        return render.files(self.source, folder)

    def to_json(self) -> dict[str, Any]:
        refused = [{"text": p.text, "fix": p.fix, "source": p.source} for p in self.problems]
        return {**self.data, "problems": refused, "notes": list(self.notes)}


def names() -> list[str]:
    """Every image's name."""
    return [*catalogue.load().images, imported.NAME]


def take(name: str, settings: Iterable[str] = ()) -> Entry:
    """An image with the user's KEY=VALUE settings. UserError names the nearest name or key."""
    if name not in names():
        raise unknown_name("container", name, names())
    if name == imported.NAME:
        return _imported(imported.with_settings(imported.Imported(), settings))
    return _built(choices.with_settings(choices.default(name), settings))


def _built(container: choices.Container) -> Entry:
    return Entry(
        name=container.image.name,
        title=container.image.title,
        script="build.sbatch",
        base=container.base.tag,
        efa=container.efa if container.network == "efa" else "",
        nccl=container.nccl_version,
        parts=tuple(render.parts(container)),
        problems=tuple(pairs.problems(container)),
        notes=tuple(pairs.notes(container)),
        data=render.versions_json(container),
        source=container,
    )


def _imported(image: imported.Imported) -> Entry:
    return Entry(
        name=imported.NAME,
        title=imported.TITLE,
        script="import.sbatch",
        base=image.tag,
        efa="",
        nccl="",
        parts=tuple(imported.parts(image)),
        problems=(),
        notes=(),
        data=imported.versions_json(image),
        source=image,
    )
