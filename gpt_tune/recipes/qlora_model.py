"""Owns finding out what shape the weights of a fine-tuning job have: as named, their config.json, or their name."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PurePosixPath

from gpt_tune.errors import UserError
from gpt_tune.models import catalogue
from gpt_tune.profiles.schema import ModelChoice, Profile
from gpt_tune.resources import existing_file, path_of

_DEFAULT = ModelChoice().id
# What publishers add to a name without changing the shape: tuned and packed variants, context lengths, dates.
_VARIANT = re.compile(
    r"-(?:instruct|chat|base|it|hf|unsloth|bf16|fp8|awq|gptq|bnb|[48]bit|\d+k|\d{4})(?=-|$)"
)
# Later versions of other shapes are models of their own in the catalogue.
_VERSION = re.compile(r"-v\d+(?:\.\d+)?$")


@dataclass(frozen=True, slots=True)
class Known:
    """A model and how it was found out: "" where the profile names it."""

    id: str
    why: str = ""


def known(profile: Profile) -> Known | None:
    """The model whose shape the weights have; None where nothing tells.

    A model other than the default one is what the user named. Without weights there is nothing to look at yet.
    """
    weights = profile.finetune.weights.strip()
    if profile.model.id != _DEFAULT or not weights:
        return Known(profile.model.id)
    if weights.startswith("/"):
        return _of_folder(weights)
    found = by_name(weights)
    return None if found is None else Known(found, "weights' name")


def awaited(profile: Profile) -> bool:
    """Whether nothing says yet what is fine-tuned: neither weights nor a model are named."""
    return profile.recipe == "qlora" and profile.model.id == _DEFAULT and not profile.finetune.weights.strip()


def settled(profile: Profile) -> Profile:
    """The profile with the model that the weights are known to have."""
    found = known(profile) if profile.recipe == "qlora" else None
    if found is None or found.id == profile.model.id:
        return profile
    return replace(profile, model=replace(profile.model, id=found.id))


def by_name(weights: str) -> str | None:
    """The catalogue's model of a repository's name: Qwen/Qwen3-8B is qwen3-8b, and so is Qwen/Qwen3-8B-Base."""
    name = PurePosixPath(weights.strip()).name.lower().removeprefix("meta-")
    plain = _VARIANT.sub("", name)
    for candidate in (name, plain, _VERSION.sub("", plain)):
        if candidate in _names():
            return _names()[candidate]
    return None


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    return {name.lower(): m.id for m in catalogue.all_models() for name in (m.id, *m.aliases)}


def _of_folder(folder: str) -> Known | None:
    """The config.json of a folder on this machine; None where it cannot be seen from here or is not understood."""
    try:
        if not existing_file(path_of(folder) / "config.json"):
            return None
        catalogue.get(folder)
    except UserError:
        return None
    return Known(folder, "its config.json")
