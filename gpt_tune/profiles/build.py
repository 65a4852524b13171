"""Owns profiles and sites as plain data: strict reading (with schema migration) and short writing. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from gpt_tune import strict
from gpt_tune.errors import UserError
from gpt_tune.profiles.schema import SCHEMA, Profile
from gpt_tune.profiles.secrets import refuse_secrets

T = TypeVar("T")

# Version n -> what turns a table of version n into one of version n + 1.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def from_dict(cls: type[T], data: Mapping[str, Any], where: str) -> T:
    """A Profile, Site or part of one from plain data.

    UserError for an unknown key (with the nearest), a wrong type, a secret, or a newer schema; each with its place.
    """
    if not isinstance(data, Mapping):
        raise UserError(f"{where} must hold a table of settings.", "See `gpt-tune profiles show smoke`.")
    table = migrated(data, where) if cls is Profile else dict(data)
    refuse_secrets(table, where)
    built = strict.from_dict(cls, table, where)
    if isinstance(built, Profile):
        check_values(built, where)
    return built


def to_dict(value: Any, everything: bool = False) -> dict[str, Any]:
    """A profile or site as plain data: what differs from the defaults, or everything."""
    data: dict[str, Any] = {}
    for f in fields(value):
        item, plain = getattr(value, f.name), None
        if is_dataclass(item):
            plain = to_dict(item, everything)
            if plain or everything:
                data[f.name] = plain
        elif everything or f.name == "schema" or item != _default(f):
            data[f.name] = list(item) if isinstance(item, tuple) else item
    return data


def migrated(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The table brought to this version's schema; a table without a version is of version 1."""
    table = dict(data)
    version = table.get("schema", 1)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise UserError(f"schema in {where} must be a whole number from 1 to {SCHEMA}, not {version!r}.", "")
    if version > SCHEMA:
        raise UserError(
            f"{where} has schema {version}; this gpt-tune reads up to {SCHEMA}.",
            "Upgrade gpt-tune, or save it anew.",
        )
    while version < SCHEMA:
        table = MIGRATIONS[version](table)
        version += 1
        table["schema"] = version
    return table


# Settings that are counts or amounts: key -> smallest legal value.
_AT_LEAST: dict[str, float] = {
    "resources.gpus": 1, "resources.gpus_per_node": 1, "model.seq_length": 1,
    "training.global_batch_size": 1, "training.iterations": 1, "training.tokens": 1,
    "training.learning_rate": 0, "training.min_learning_rate": 0, "training.lr_warmup_iterations": 0,
    "training.lr_decay_iterations": 1, "training.weight_decay": 0, "training.gradient_clipping": 0,
    "training.adam_beta1": 0, "training.adam_beta2": 0, "training.init_std": 0, "training.dropout": 0,
    "training.log_interval": 1, "training.checkpoint_interval": 1, "training.eval_interval": 1,
    "training.eval_iterations": 0, "smoke.seconds": 1, "smoke.steps": 1, "smoke.layers": 1, "smoke.hidden": 1,
    "smoke.heads": 1, "smoke.seq_length": 2, "smoke.micro_batch_size": 1, "preflight.seconds": 10,
    "acs.micro_batch_size": 1,
}  # fmt: skip
_BELOW: dict[str, float] = {
    "training.adam_beta1": 1, "training.adam_beta2": 1, "training.dropout": 1
}  # fmt: skip
# The largest that makes sense, far above any real run: more is a slip of the hand.
_AT_MOST: dict[str, int] = {
    "resources.gpus": 1_000_000, "resources.gpus_per_node": 1024, "model.seq_length": 100_000_000,
    "training.global_batch_size": 100_000_000, "training.iterations": 10**9, "training.lr_warmup_iterations": 10**9,
    "training.lr_decay_iterations": 10**9, "training.log_interval": 10**9, "training.checkpoint_interval": 10**9,
    "training.eval_interval": 10**9, "training.eval_iterations": 10**9, "training.seed": 2**32 - 1,
    "smoke.seconds": 10**9, "smoke.steps": 10**9, "smoke.layers": 1000, "smoke.hidden": 65_536, "smoke.heads": 1024,
    "smoke.seq_length": 1_048_576, "smoke.micro_batch_size": 65_536,
    "finetune.max_samples": 10**9, "finetune.lora_rank": 65_536, "finetune.lora_alpha": 10**6,
    "finetune.micro_batch_size": 65_536, "finetune.gradient_accumulation_steps": 10**6, "finetune.steps": 10**9,
    "finetune.log_interval": 10**9, "finetune.checkpoint_interval": 10**9, "finetune.checkpoints_kept": 10**6,
    "finetune.eval_interval": 10**9, "finetune.patience": 10**6, "finetune.seed": 2**32 - 1,
    "acs.micro_batch_size": 65_536,
    "preflight.seconds": 300,
}  # fmt: skip


def check_values(profile: Profile, where: str) -> None:
    """Numbers in range and choices that exclude each other; the planner checks what fits together."""
    for key, least in _AT_LEAST.items():
        value = value_at(profile, key)
        if value is not None and value < least:
            raise UserError(f"{key} in {where} must be at least {least:g}, not {_digits(value)}.", "")
    for key, most in _AT_MOST.items():
        value = value_at(profile, key)
        if value is not None and value > most:
            raise UserError(
                f"{key} in {where} must be at most {most}, not {_digits(value)}.", f"Take at most {most}."
            )
    for key, limit in _BELOW.items():
        if value_at(profile, key) >= limit:
            raise UserError(f"{key} in {where} must be below {limit:g}, not {value_at(profile, key):g}.", "")
    if profile.training.iterations is not None and profile.training.tokens is not None:
        raise UserError(
            f"{where} sets both training.iterations ({profile.training.iterations}) "
            f"and training.tokens ({profile.training.tokens:g}).",
            "Keep one of them.",
        )
    if profile.smoke.hidden % profile.smoke.heads:
        raise UserError(
            f"smoke.hidden {profile.smoke.hidden} in {where} does not divide by smoke.heads {profile.smoke.heads}.",
            f"Set smoke.hidden to {profile.smoke.heads * max(1, profile.smoke.hidden // profile.smoke.heads)}.",
        )


def _digits(value: float) -> str:
    """A number in one sentence; the digits of a huge one are not shown."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if abs(value) < 10**30 else "a number of more than 30 digits"


def value_at(profile: Any, key: str) -> Any:
    """The value at a dotted key ("training.data")."""
    value = profile
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part)
    return value


def _default(f: Any) -> Any:
    return f.default_factory() if callable(f.default_factory) else f.default
