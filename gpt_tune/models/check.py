"""Owns what makes a model shape possible, and the sentence for one that is not."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from gpt_tune.errors import UserError, shown
from gpt_tune.models.shape import ModelShape

# Above these a figure is a typing error: the largest published models stay 10 times below.
_LIMITS = {
    "layers": 10_000,
    "hidden": 1_000_000,
    "heads": 10_000,
    "kv_heads": 10_000,
    "ffn": 10_000_000,
    "vocab": 10_000_000,
    "seq_length": 100_000_000,
    "head_size": 100_000,
}
_EXPERT_LIMITS = {"experts": 100_000, "experts_per_token": 10_000, "expert_ffn": 10_000_000}
# What is longer is no number that anybody meant, and too long for a sentence.
_MOST_DIGITS = 30
_OPTIONAL = (
    "experts",
    "experts_per_token",
    "expert_ffn",
    "shared_expert_ffn",
    "dense_layers",
    "position_slots",
)


def whole_number(value: Any, name: str, where: str = "", minimum: int = 1) -> int:
    """value as an int, or a UserError naming it. True, NaN, 1.5 and "12x" are refused; 12.0 and "12" pass."""
    place = f" of {where}" if where else ""
    hint = f"Give a whole number, {minimum} or more."
    if isinstance(value, str):
        try:
            value = _number_of(value)
        except ValueError as error:
            raise UserError(f"{name}{place} is {shown(value)}, which is not a whole number.", hint) from error
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"{name}{place} is {shown_value(value)}, which is not a whole number.", hint)
    if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
        raise UserError(f"{name}{place} is {value}, which is not a whole number.", hint)
    if abs(value) >= 10**_MOST_DIGITS:
        raise UserError(f"{name}{place} has more than {_MOST_DIGITS} digits, which is too large.", hint)
    if value < minimum:
        raise UserError(f"{name}{place} is {int(value)}, below {minimum}.", hint)
    return int(value)


def _number_of(text: str) -> int | float:
    """12, 12.0 and 1_000 as a number; ValueError for other digits than 0 to 9 as well."""
    if not text.isascii():
        raise ValueError(text)
    return float(text) if any(c in text for c in ".eE") else int(text.replace("_", ""))


def shown_value(value: Any) -> str:
    """Any value of a file as a message can show it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:30]}…"


def nearest_divisor(number: int, wanted: int) -> int:
    """The divisor of `number` closest to `wanted`, the smaller one of two equally close."""
    divisors = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return min((x for d in divisors for x in (d, number // d)), key=lambda x: (abs(x - wanted), x))


def checked(shape: ModelShape) -> ModelShape:
    """The shape itself when it is possible; otherwise a UserError with rule, numbers and nearest legal value."""
    where = f"model {shape.id!r}"
    for name, limit in _LIMITS.items():
        _within(getattr(shape, name), name, where, 1, limit)
    for name in _OPTIONAL:
        _within(getattr(shape, name), name, where, 0, 10_000_000)
    if shape.heads % shape.kv_heads:
        raise UserError(
            f"{where} has {shape.heads} heads, not divisible by {shape.kv_heads} key-value heads.",
            f"The nearest kv_heads that divides {shape.heads} is "
            f"{nearest_divisor(shape.heads, shape.kv_heads)}.",
        )
    if shape.norms_per_layer not in (0, 1, 2, 4):
        raise UserError(f"norms_per_layer of {where} is {shape.norms_per_layer}.", "Use 1, 2 or 4.")
    _choice(shape.positions, "positions", where, ("learned", "rotary", "alibi", "none"))
    _choice(shape.norm, "norm", where, ("layernorm", "rmsnorm"))
    if not (math.isfinite(shape.rope_theta) and shape.rope_theta > 1):
        raise UserError(f"rope_theta of {where} is {shape.rope_theta:g}.", "Give the base, such as 10000.")
    if not 0 < shape.rotary_share <= 1:
        raise UserError(
            f"rotary_share of {where} is {shape.rotary_share:g}.", "Give a share above 0, up to 1."
        )
    if shape.experts:
        _check_experts(shape, where)
    return shape


def head_size_of(hidden: int, heads: int, where: str) -> int:
    """hidden / heads, or a UserError with the nearest numbers of heads and hidden sizes that divide."""
    _within(hidden, "hidden", where.removeprefix(" of "), 1, _LIMITS["hidden"])
    _within(heads, "heads", where.removeprefix(" of "), 1, _LIMITS["heads"])
    if hidden % heads == 0:
        return hidden // heads
    below = hidden // heads * heads
    sizes = " or ".join(str(x) for x in (below, below + heads) if x)
    raise UserError(
        f"hidden {hidden}{where} is not divisible by {heads} heads.",
        f"Use {nearest_divisor(hidden, heads)} heads, or hidden {sizes}, or state head_size.",
    )


def _check_experts(shape: ModelShape, where: str) -> None:
    for name, limit in _EXPERT_LIMITS.items():
        _within(getattr(shape, name), name, where, 1, limit)
    if shape.experts_per_token > shape.experts:
        raise UserError(
            f"{where} routes each token to {shape.experts_per_token} experts but has {shape.experts}.",
            f"Use experts_per_token {shape.experts} or fewer.",
        )
    if shape.dense_layers >= shape.layers:
        raise UserError(
            f"{where} has {shape.dense_layers} dense layers of {shape.layers}, leaving none for its experts.",
            f"Use dense_layers {shape.layers - 1} or fewer, or experts=0.",
        )


def _within(value: Any, name: str, where: str, low: int, high: int) -> None:
    number = whole_number(value, name, where, low)
    if number > high:
        raise UserError(f"{name} of {where} is {number}, above {high}.", f"Use {high} or less.")


def _choice(value: str, name: str, where: str, known: Iterable[str]) -> None:
    names = tuple(known)
    if value not in names:
        raise UserError(f"{name} of {where} is {value!r}.", f"Use one of {', '.join(names)}.")
