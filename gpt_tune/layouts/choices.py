"""Owns the choices a user fixes with `--fix KEY=VALUE`: their names, types, and putting them into a layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from gpt_tune.errors import UserError, unknown_name
from gpt_tune.layouts.batch import CONTEXT_METHODS, GRANULARITIES, METHODS, PRECISIONS
from gpt_tune.layouts.layout import Fusions, Layout, Trainer

Fixed = dict[str, Any]
ACCUMULATION = "trainer.gradient_accumulation_dtype"
ENGINE = "trainer.pipeline_engine"
_NULL = ("null", "none", "")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
# Larger ones are typing errors; the limits also keep products inside 64 bits.
_LARGEST = 10_000_000
_LARGEST_SPLIT = 4096
_LARGEST_DATA = 1_000_000


@dataclass(frozen=True, slots=True)
class Choice:
    """One key: kind is int, bool or word. words: the allowed ones. low: the smallest number."""

    kind: str
    words: tuple[str, ...] = ()
    low: int = 1
    high: int = _LARGEST
    nullable: bool = False


_SPLITS = ("tensor_parallel", "pipeline_parallel", "virtual_pipeline", "context_parallel", "expert_parallel")
_COUNTS = (
    "micro_batch_size",
    "gradient_accumulation_steps",
    "global_batch_size",
)
CHOICES: dict[str, Choice] = {
    **{name: Choice("int", high=_LARGEST_SPLIT) for name in _SPLITS},
    "data_parallel": Choice("int", high=_LARGEST_DATA),
    **{name: Choice("int") for name in _COUNTS},
    "zero_stage": Choice("int", low=0, high=3),
    "context_method": Choice("word", tuple(m for m in CONTEXT_METHODS if m), nullable=True),
    "sequence_parallel": Choice("bool"),
    "flash_attention": Choice("bool"),
    "precision": Choice("word", PRECISIONS),
    "recompute.granularity": Choice("word", GRANULARITIES),
    "recompute.method": Choice("word", tuple(m for m in METHODS if m), nullable=True),
    "recompute.layers": Choice("int", nullable=True),
    **{f"fusions.{f.name}": Choice("bool") for f in fields(Fusions)},
    ACCUMULATION: Choice("word", ("fp32", "bf16", "fp16"), nullable=True),
    ENGINE: Choice("bool", nullable=True),
}
_SHORT = {
    "recompute": "recompute.granularity",
    "gradient_accumulation_dtype": ACCUMULATION,
    "pipeline_engine": ENGINE,
}
_FLAGS = {"seq_length": "--seq-length", "gpus": "--gpus", "model": "--model", "trainer": "--trainer"}


def parse_fix(items: Iterable[str]) -> Fixed:
    """`KEY=VALUE` texts as checked values by dotted path; the last of a repeated key wins."""
    fixed: Fixed = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key.strip():
            raise UserError(f"--fix {item!r} is not KEY=VALUE.", "Write for example --fix tensor_parallel=8.")
        name = known_key(key.strip())
        fixed[name] = _from_text(name, value.strip())
    return fixed


def check_fixed(data: Mapping[str, Any]) -> Fixed:
    """Fixed keys from a profile or a program, nested or dotted, as checked values by dotted path."""
    fixed: Fixed = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            nested = {f"{key}.{inner}": v for inner, v in value.items()}
            fixed.update(check_fixed(nested))
            continue
        name = known_key(str(key))
        fixed[name] = _from_text(name, value) if isinstance(value, str) else _checked(name, value)
    return fixed


def known_key(key: str) -> str:
    """The full dotted path of a key, or UserError with the nearest name."""
    path = key.removeprefix("layout.").replace("-", "_")
    path = _SHORT.get(path, path)
    if path in CHOICES:
        return path
    if path in _FLAGS:
        raise UserError(f"{key!r} is not a layout key.", f"Use {_FLAGS[path]}.")
    raise unknown_name("layout key", key, [*CHOICES, "recompute"])


def agree(fixed: Mapping[str, Any], flags: Mapping[str, Any]) -> Fixed:
    """fixed and flags (None: not given) as one; a fixed key and a flag that disagree raise UserError."""
    both = dict(fixed)
    for key, value in flags.items():
        if value is None:
            continue
        if key in both and both[key] != value:
            flag = "--" + key.replace("_", "-")
            raise UserError(
                f"{flag} {value} and --fix {key}={both[key]} disagree.",
                "Give one of them, or the same value.",
            )
        both[key] = value
    return both


def apply(layout: Layout, fixed: Mapping[str, Any]) -> Layout:
    """The layout with every fixed layout key put in."""
    plain: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {"recompute": {}, "fusions": {}}
    for key, value in fixed.items():
        group, dot, inner = key.partition(".")
        if not dot:
            plain[key] = value
        elif group in nested:
            nested[group][inner] = value
    return replace(
        layout,
        **plain,
        recompute=replace(layout.recompute, **nested["recompute"]),
        fusions=replace(layout.fusions, **nested["fusions"]),
    )


def apply_to_trainer(trainer: Trainer, fixed: Mapping[str, Any]) -> Trainer:
    """The trainer with the fixed keys that are its own (accumulation dtype, pipeline engine)."""
    changes: dict[str, Any] = {}
    if ACCUMULATION in fixed:
        changes["gradient_accumulation_dtype"] = fixed[ACCUMULATION]
    if ENGINE in fixed:
        changes["pipeline_engine"] = fixed[ENGINE]
    return replace(trainer, **changes)


def _from_text(key: str, text: str) -> Any:
    choice = CHOICES[key]
    word = text.strip().lower()
    if choice.nullable and word in _NULL:
        return None
    if choice.kind == "bool":
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise UserError(f"{key} is {text!r}.", "Use true or false.")
    if choice.kind == "int":
        try:
            return _checked(key, int(text))
        except ValueError as error:
            raise UserError(f"{key} is {text!r}, which is not a whole number.", _range(choice)) from error
    return _checked(key, word)


def _checked(key: str, value: Any) -> Any:
    choice = CHOICES[key]
    if value is None and choice.nullable:
        return None
    if choice.kind == "bool":
        if isinstance(value, bool):
            return value
        raise UserError(f"{key} is {value!r}.", "Use true or false.")
    if choice.kind == "int":
        return _whole(key, value, choice)
    if isinstance(value, str) and value in choice.words:
        return value
    options = ", ".join(choice.words) + (" or null" if choice.nullable else "")
    raise UserError(f"{key} is {value!r}.", f"Use {options}.")


def _whole(key: str, value: Any, choice: Choice) -> int:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole:
        raise UserError(f"{key} is {value!r}, which is not a whole number.", _range(choice))
    if not choice.low <= value <= choice.high:
        raise UserError(f"{key} is {value}.", _range(choice))
    return int(value)


def _range(choice: Choice) -> str:
    return f"Give a whole number from {choice.low} to {choice.high}."
