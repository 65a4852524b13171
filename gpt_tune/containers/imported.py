"""Owns images that somebody else built: Alibaba's training-nv-pytorch, fetched once and kept as an enroot file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from gpt_tune import rendering
from gpt_tune.containers.parts import BUILD_SIGNAL, NEED_GIB, Part
from gpt_tune.errors import UserError, nearest, shown
from gpt_tune.profiles.acs import Acs
from gpt_tune.recipes import acs_rules
from gpt_tune.recipes.base import RenderedFile

NAME = "acs"
TITLE = "Alibaba's training-nv-pytorch, fetched once and kept as an enroot file"
SETTINGS = ("release", "vpc_region", "image", "sqsh", "time_limit")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/#@-]{0,400}")


@dataclass(frozen=True, slots=True)
class Imported:
    """An image to fetch. acs: its release, region or address. sqsh: where the file goes, "" beside the others."""

    acs: Acs = field(default_factory=Acs)
    sqsh: str = ""
    time_limit: str = "1:00:00"

    @property
    def address(self) -> str:
        """As enroot names it."""
        return acs_rules.enroot_address(acs_rules.image_of(self.acs))

    @property
    def tag(self) -> str:
        return re.split(r"[:@]", self.address.rpartition("/")[2], maxsplit=1)[-1].replace(":", "-")


def with_settings(imported: Imported, settings: Iterable[str]) -> Imported:
    """The image with KEY=VALUE settings applied in order. UserError names the nearest key."""
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals:
            raise UserError(
                f"--set {shown(setting)} has no '='.", "Write KEY=VALUE, for example release=25.10."
            )
        if key not in SETTINGS:
            close = nearest(key, SETTINGS)
            hint = f"Did you mean {close!r}?" if close else f"Known: {', '.join(SETTINGS)}."
            raise UserError(f"Unknown setting {shown(key)} of the container {NAME}.", hint)
        rendering.single_line(value, key)
        if key in ("sqsh", "time_limit"):
            imported = replace(imported, **{key: value})  # type: ignore[arg-type]
        else:
            imported = replace(imported, acs=replace(imported.acs, **{key: value}))  # type: ignore[arg-type]
    _check(imported)
    return imported


def _check(imported: Imported) -> None:
    if not _ADDRESS.fullmatch(imported.address):
        raise UserError(f"{shown(imported.address)} is no image's address.", "Write REGISTRY/NAME:TAG.")
    name = imported.address.rpartition("/")[2]
    if ":" not in name and "@" not in name:
        raise UserError(f"{shown(imported.address)} has no tag.", "Name a version: the newest one changes.")
    if imported.sqsh and not imported.sqsh.startswith("/"):
        raise UserError(f"sqsh is {shown(imported.sqsh)}; it must be an absolute path.", "Start it with '/'.")


def parts(imported: Imported) -> list[Part]:
    """What is known of the image's contents."""
    release = acs_rules.releases().get(imported.acs.release)
    found = [Part("image", imported.address, acs_rules.data()["image"]["source"], "base")]
    if release is None or imported.acs.image:
        return found
    named = (
        ("CUDA", " or ".join(release["cuda"])),
        ("torch", release.get("torch")),
        ("deepspeed", release.get("deepspeed")),
    )
    return found + [Part(what, version, release["source"], "base") for what, version in named if version]


def versions_json(imported: Imported) -> dict[str, Any]:
    """What is in the image, for programs."""
    return {
        "schema": "gpt-tune/container/1",
        "name": NAME,
        "image": imported.address,
        "title": TITLE,
        "recipes": [NAME],
        "nodes": None,
        "network": None,
        "base": imported.address,
        "parts": [part.to_json() for part in parts(imported)],
    }


def files(imported: Imported, folder: str) -> tuple[RenderedFile, ...]:
    """Every file of the folder. folder: where it will be, absolute."""
    rendering.run_folder(folder)
    sqsh = imported.sqsh or f"{folder}/training-nv-pytorch-{rendering.slug(imported.tag, 'image')}.sqsh"
    option = rendering.sbatch_option
    sbatch = [
        option("job-name", "import-training-nv-pytorch"),
        option("output", f"{folder}/{rendering.LOG_FOLDER}/%x-%j.out"),
        option("open-mode", "append"),
        option("nodes", 1),
        option("ntasks", 1),
        option("exclusive"),
        option("mem", 0),
        option("signal", BUILD_SIGNAL),
        option("no-requeue"),
        *([option("time", imported.time_limit)] if imported.time_limit else []),
    ]
    headline = f"{TITLE}: {imported.address}."
    job = rendering.render(
        "containers/import.sbatch.j2",
        sbatch=sbatch,
        headline=headline,
        reference=imported.address,
        folder=folder,
        sqsh=sqsh,
        builder="",
        target="",
        need_gib=NEED_GIB,
    )
    readme = rendering.render(
        "containers/imported.md.j2",
        headline=headline,
        sqsh=sqsh,
        address=imported.address,
        need_gib=NEED_GIB,
        parts=[(p.what, p.version, p.source) for p in parts(imported)],
    )
    return (
        RenderedFile("import.sbatch", job, executable=True),
        RenderedFile("versions.json", rendering.json_bytes(versions_json(imported))),
        RenderedFile("README.md", readme),
    )
