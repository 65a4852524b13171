"""Owns where each setting of a run comes from, as a table: site, user, profile, project, you, or a default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpt_tune.profiles.build import value_at
from gpt_tune.profiles.schema import Profile
from gpt_tune.profiles.settings import known_keys

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting with the words for its origin; "default" where nobody set it."""

    key: str
    value: Any
    origin: str


def table(profile: Profile, origins: Mapping[str, str], everything: bool = False) -> tuple[Setting, ...]:
    """Every setting that is not left at its default, or all of them, in the order of the profile's file."""
    default, found = Profile(), []
    for key in known_keys(Profile):
        value = value_at(profile, key)
        origin = origin_of(key, origins)
        if not origin and value != value_at(default, key) and key != "schema":
            origin = "chosen for this machine"
        if everything or origin:
            found.append(Setting(key, value, origin or DEFAULT))
    return tuple(found)


def origin_of(key: str, origins: Mapping[str, str]) -> str:
    """Where a setting comes from; tables (layout.fixed) take their entries' origins. "" for a default."""
    inside = sorted({words for k, words in origins.items() if k == key or k.startswith(f"{key}.")})
    return ", ".join(inside)


def origins_of(profile: Profile, words: str) -> dict[str, str]:
    """Every setting of a profile that is not a default, with the same origin."""
    default = Profile()
    return {k: words for k in known_keys(Profile) if value_at(profile, k) != value_at(default, k)}


def words_of(value: Any) -> str:
    """A value as one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return ", ".join(str(v) for v in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={words_of(v)}" for k, v in value.items())
    return "" if value is None else str(value)
