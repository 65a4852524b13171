"""Owns making a ModelShape from named fields: of a catalogue file, or of `layers=..,hidden=..,heads=..`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from gpt_tune.errors import UserError, unknown_name
from gpt_tune.models import rope
from gpt_tune.models.check import checked, head_size_of, whole_number
from gpt_tune.models.shape import ModelShape

_KINDS = {f.name: str(f.type) for f in fields(ModelShape)}
REQUIRED = ("layers", "hidden", "heads")
# GPT-2's byte pairs, the default tokenizer of Megatron-DeepSpeed.
DEFAULT_VOCAB = 50257
DEFAULT_SEQ_LENGTH = 2048
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def from_fields(data: Mapping[str, Any], where: str, model_id: str) -> ModelShape:
    """A checked shape. layers, hidden and heads are required; everything else defaults to a plain GPT's.

    Defaults: kv_heads = heads, head_size = hidden / heads, ffn = 4 hidden (gated: 8/3 hidden rounded down to
    a multiple of 64, Megatron-DeepSpeed's own default), vocab 50257, seq_length 2048.
    """
    for name in data:
        if name not in _KINDS:
            raise unknown_name("model field", name, _KINDS, where)
    for name in REQUIRED:
        if name not in data:
            raise UserError(f"{where} lacks {name!r}.", f"A model needs {', '.join(REQUIRED)}.")
    values = {name: _typed(name, value, where) for name, value in data.items()}
    values["id"] = values.get("id") or model_id or _custom_id(values)
    values["rope_scaling"] = rope.canonical(values.get("rope_scaling", ""), where)
    return checked(ModelShape(**_with_defaults(values, where)))


def parse_inline(text: str) -> ModelShape:
    """`layers=24,hidden=2048,heads=16,...` as a shape."""
    data: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, separator, value = part.partition("=")
        if not separator or not value.strip():
            raise UserError(
                f"{part!r} in the model {text!r} is not KEY=VALUE.",
                "Write for example layers=24,hidden=2048,heads=16.",
            )
        data[name.strip()] = value.strip()
    return from_fields(data, f"the model {text!r}", "")


def _custom_id(values: Mapping[str, Any]) -> str:
    return f"custom-{values['layers']}x{values['hidden']}x{values['heads']}"


def _with_defaults(values: dict[str, Any], where: str) -> dict[str, Any]:
    hidden, heads = values["hidden"], values["heads"]
    values.setdefault("kv_heads", heads)
    if "head_size" not in values:
        values["head_size"] = head_size_of(hidden, heads, f" of {where}")
    if "ffn" not in values:
        values["ffn"] = _default_ffn(hidden, values.get("gated_mlp", False), values.get("expert_ffn", 0))
    values.setdefault("vocab", DEFAULT_VOCAB)
    values.setdefault("seq_length", DEFAULT_SEQ_LENGTH)
    # A model with linear biases has them on query, key and value too, unless it says otherwise.
    values.setdefault("qkv_bias", values.get("linear_bias", True))
    if values.get("experts") and not values.get("expert_ffn"):
        values["expert_ffn"] = values["ffn"]
    return values


def _default_ffn(hidden: int, gated: bool, expert_ffn: int) -> int:
    if expert_ffn:
        return expert_ffn
    return max(64, int(8 * hidden / 3) // 64 * 64) if gated else 4 * hidden


def _typed(name: str, value: Any, where: str) -> Any:
    kind = _KINDS[name]
    if kind == "int":
        return whole_number(value, name, where, 1 if name in _POSITIVE else 0)
    if kind == "float":
        return _number(value, name, where)
    if kind == "bool":
        return _truth(value, name, where)
    if kind.startswith("tuple"):
        if isinstance(value, (list, tuple)) and all(isinstance(x, str) for x in value):
            return tuple(value)
        raise UserError(f"{name} of {where} is {value!r}.", "Give a list of strings.")
    if not isinstance(value, str):
        raise UserError(f"{name} of {where} is {value!r}, which is not text.", "Put it in quotes.")
    return value


_POSITIVE = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq_length", "head_size")


def _number(value: Any, name: str, where: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{name} of {where} is {value!r}, which is not a number.", "Give a number."
        ) from error


def _truth(value: Any, name: str, where: str) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise UserError(f"{name} of {where} is {value!r}.", "Use true or false.")
