"""Owns finding a model by what a user typed: an id, an alias, a file, or its numbers."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

from gpt_tune import toml
from gpt_tune.errors import UserError, nearest, shown, unknown_name
from gpt_tune.models.fields import from_fields, parse_inline
from gpt_tune.models.huggingface import from_config_file
from gpt_tune.models.shape import ModelShape
from gpt_tune.resources import data_dir, existing, existing_dir, existing_file

_MOST_BYTES = 64 << 20  # a config.json has a few KiB
_OTHER_WAYS = "Or give a path to a config.json or TOML, or layers=..,hidden=..,heads=.."


def names() -> list[str]:
    """Ids of all catalogue models, smallest name order."""
    return sorted(path.stem for path in (data_dir("profiles") / "models").glob("*.toml"))


def all_models() -> list[ModelShape]:
    """Every catalogue model, in the order of names()."""
    return [_shipped(name) for name in names()]


def get(text: str) -> ModelShape:
    """The model named by a catalogue id or alias (any case), a file, or `layers=..,hidden=..,heads=..`.

    Raises UserError with the nearest name, or with what is wrong with the file or the numbers.
    """
    wanted = text.strip()
    if not wanted:
        raise UserError("The model is empty.", f"Give a catalogue id such as gpt-1.3b. {_OTHER_WAYS}")
    key = wanted.lower()
    if key in names():
        return _shipped(key)
    if key in _aliases():
        return _shipped(_aliases()[key])
    if "=" in wanted and existing(wanted) is None:
        return parse_inline(wanted)
    if _looks_like_file(wanted):
        return from_file(existing(wanted) or Path(wanted))
    known = names() if nearest(key, names(), cutoff=0.7) else [*names(), *_aliases()]
    error = unknown_name("model", wanted, known)
    raise UserError(error.message, f"{error.hint} {_OTHER_WAYS}")


def from_file(path: Path) -> ModelShape:
    """A model from a Hugging Face config.json (or the folder that holds it) or from a TOML file."""
    if existing_dir(path):
        path = path / "config.json"
    if not existing_file(path):
        raise UserError(f"There is no model file {shown(str(path))}.", "Check the path.")
    if path.stat().st_size > _MOST_BYTES:
        raise UserError(
            f"{shown(str(path))} is over {_MOST_BYTES >> 20} MiB: no description of a model is so large.",
            "Give its config.json, not its weights.",
        )
    if path.suffix.lower() == ".toml":
        return from_fields(toml.load(path), str(path), path.stem)
    return from_config_file(path)


def _looks_like_file(text: str) -> bool:
    return existing(text) is not None or text.lower().endswith((".json", ".toml")) or "/" in text


@cache
def _shipped(name: str) -> ModelShape:
    path = data_dir("profiles") / "models" / f"{name}.toml"
    return from_fields(toml.load(path), f"profiles/models/{name}.toml", name)


@lru_cache(maxsize=1)
def _aliases() -> dict[str, str]:
    return {alias.lower(): model.id for model in all_models() for alias in model.aliases}
