"""Owns the versions that container images are made of, as shipped in `profiles/containers/versions.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpt_tune import toml
from gpt_tune.errors import unknown_name
from gpt_tune.resources import data_dir

FILE = "profiles/containers/versions.toml"


@dataclass(frozen=True, slots=True)
class Base:
    """An image that everything is built on. nccl: the version it brings, "" where its notes do not say."""

    tag: str
    image: str
    cuda: str
    python: str
    ubuntu: str
    nccl: str
    source: str


@dataclass(frozen=True, slots=True)
class Release:
    """One release of a library. details: what else is known of it (commit, CUDA builds, bundled plugin)."""

    version: str
    source: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Checkout:
    """A repository at one commit."""

    name: str
    url: str
    commit: str
    source: str


@dataclass(frozen=True, slots=True)
class Image:
    """What one image has on top of the shared base. python: package to version; sources: package to source."""

    name: str
    title: str
    recipes: tuple[str, ...]
    python: Mapping[str, str]
    sources: Mapping[str, str]
    checks: tuple[str, ...]
    checkouts: tuple[Checkout, ...]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything that can be chosen from. default: the versions taken where nobody chose."""

    default: Mapping[str, str]
    bases: Mapping[str, Base]
    efa: Mapping[str, Release]
    nccl: Mapping[str, Release]
    gdrcopy: Mapping[str, Release]
    images: Mapping[str, Image]
    efa_fingerprint: str
    keyring: str

    def image(self, name: str) -> Image:
        """The image of that name; UserError with the nearest one otherwise."""
        if name not in self.images:
            raise unknown_name("container", name, self.images)
        return self.images[name]


@lru_cache(maxsize=1)
def load() -> Catalogue:
    """The shipped catalogue."""
    data = toml.load(data_dir("profiles") / "containers" / "versions.toml")
    return Catalogue(
        default=dict(data["default"]),
        bases={entry["tag"]: Base(**entry) for entry in data["base"]},
        efa=_releases(data["efa"]),
        nccl=_releases(data["nccl"]),
        gdrcopy=_releases(data["gdrcopy"]),
        images={name: _image(name, entry) for name, entry in data["image"].items()},
        efa_fingerprint=data["efa_key"]["fingerprint"],
        keyring=data["nccl_keyring"]["file"],
    )


def _releases(entries: list[dict[str, Any]]) -> dict[str, Release]:
    return {
        entry["version"]: Release(
            entry["version"],
            entry["source"],
            {k: v for k, v in entry.items() if k not in ("version", "source")},
        )
        for entry in entries
    }


def _image(name: str, entry: Mapping[str, Any]) -> Image:
    return Image(
        name=name,
        title=entry["title"],
        recipes=tuple(entry["recipes"]),
        python=dict(entry["python"]),
        sources=dict(entry["sources"]),
        checks=tuple(entry["checks"]),
        checkouts=tuple(Checkout(n, **v) for n, v in entry.get("git", {}).items()),
    )
