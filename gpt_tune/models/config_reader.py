"""Owns typed access to a Hugging Face `config.json`, with the file's name in every complaint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_tune.errors import UserError
from gpt_tune.models import rope
from gpt_tune.models.check import whole_number

Config = Mapping[str, Any]
Fields = dict[str, Any]


class ConfigReader:
    """Typed access to a config with the file's name in every complaint."""

    def __init__(self, config: Config, where: str) -> None:
        self.config = config
        self.where = where

    def number(self, *keys: str, default: int | None = None) -> int:
        """The first of these keys that is present and not null."""
        for key in keys:
            if self.config.get(key) is not None:
                return whole_number(self.config[key], key, self.where)
        if default is None:
            raise UserError(f"{self.where} lacks {keys[0]!r}.", "Give the model's complete config.json.")
        return default

    def rope(self, theta: float = 10000.0, share: float = 1.0) -> Fields:
        """Rotary positions; transformers 5 puts all of it under rope_parameters."""
        inner = self.config.get("rope_parameters")
        inner = inner if isinstance(inner, Mapping) else {}
        scaling = self.config.get("rope_scaling")
        scaling = scaling if isinstance(scaling, Mapping) else inner

        def first(*names: str) -> Any:
            found = (self.config.get(n, inner.get(n)) for n in names)
            return next((v for v in found if v is not None), None)

        return {
            "rope_theta": first("rope_theta", "rotary_emb_base") or theta,
            "rotary_share": first("partial_rotary_factor", "rotary_pct") or share,
            "rope_scaling": rope.written(scaling),
        }

    def flag(self, key: str, default: bool) -> bool:
        value = self.config.get(key, default)
        if not isinstance(value, bool):
            raise UserError(f"{key} of {self.where} is {value!r}.", "Use true or false.")
        return value

    def inside(self, key: str) -> ConfigReader:
        """A part of the config that stands under one key; an empty one where it is left out."""
        part = self.config.get(key) or {}
        if not isinstance(part, Mapping):
            raise UserError(f"{key} of {self.where} is {part!r}, not an object.", "Download the file again.")
        return ConfigReader(part, f"{key} of {self.where}")

    def refuse(self, key: str, default: bool, instead: str) -> None:
        """UserError when a switch stands other than at `default`, the only way that is counted here."""
        if self.flag(key, default) != default:
            raise UserError(
                f"{self.where} switches {key} {'off' if default else 'on'}, which is not supported.",
                f"{instead} Or give the model as layers=..,hidden=..,heads=.. with the nearest settings.",
            )
