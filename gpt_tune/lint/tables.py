"""Owns the shipped lists that rules look names up in (`profiles/lint/*.toml`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpt_tune import toml
from gpt_tune.resources import data_dir


@lru_cache(maxsize=16)
def table(name: str) -> Mapping[str, Any]:
    """One shipped file as a dict."""
    return toml.load(data_dir("profiles") / "lint" / f"{name}.toml")


@lru_cache(maxsize=1)
def acs() -> Mapping[str, Any]:
    """The rules of Alibaba's training image, which the recipe acs reads too."""
    return toml.load(data_dir("profiles") / "containers" / "acs.toml")


@lru_cache(maxsize=1)
def container_versions() -> Mapping[str, Any]:
    """What container images are made of, and what an EFA installer brings."""
    return toml.load(data_dir("profiles") / "containers" / "versions.toml")


@dataclass(frozen=True, slots=True)
class Library:
    """The environment variables one library reads. former: only older releases did."""

    prefix: str
    words: str
    source: str
    names: frozenset[str]
    former: frozenset[str]
    others: frozenset[str]
    other_prefixes: tuple[str, ...]

    def knows(self, name: str) -> bool:
        """Whether the library, or another program that shares its prefix, reads the name."""
        return name in self.names | self.former | self.others or name.startswith(self.other_prefixes)


@lru_cache(maxsize=1)
def libraries() -> tuple[Library, ...]:
    """The libraries whose variables are known."""
    found = []
    for name in ("nccl", "libfabric", "aws-ofi-nccl", "torch-nccl"):
        data = table(name)
        found.append(
            Library(
                data["prefix"], data["library"], data["source"], frozenset(data["names"]),
                frozenset(data["former"]), frozenset(data["others"]), tuple(data["other_prefixes"]),
            )
        )  # fmt: skip
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Renamed:
    """A name that was replaced. works: the old one is still read. safe: renaming changes nothing else."""

    old: str
    new: str
    since: str
    works: bool
    source: str
    safe: bool = True


@lru_cache(maxsize=1)
def renamed() -> Mapping[str, Renamed]:
    """Old name to what replaced it."""
    return {entry["old"]: Renamed(**entry) for entry in table("renamed")["name"]}
