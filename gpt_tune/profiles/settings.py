"""Owns one setting of a profile as text: KEY=VALUE from a command line or a form, turned into the field's type."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from gpt_tune import strict
from gpt_tune.errors import UserError, unknown_name
from gpt_tune.profiles.build import check_values
from gpt_tune.profiles.schema import Profile
from gpt_tune.profiles.secrets import refuse_secrets

T = TypeVar("T")
_TRUE, _FALSE, _NONE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}, {"", "none", "null", "auto"}


def with_settings(profile: Profile, settings: Iterable[str], where: str = "--set") -> Profile:
    """The profile with KEY=VALUE settings applied in order; the last wins. where: the option they came by."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise UserError(
                f"{where} {setting!r} has no '='.", "Write KEY=VALUE, for example training.data=/data/text."
            )
        profile = with_value(profile, key.strip(), text.strip(), where)
    check_values(profile, where)
    return profile


def with_value(base: T, key: str, text: str, where: str = "--set") -> T:
    """A profile (or site) with one dotted key set from text. UserError names the nearest key."""
    value = parse(type_of(type(base), key, where), text, where, key)
    refuse_secrets({key: value}, where)
    changed: T = _replaced(base, key.split("."), value)
    return changed


def type_of(cls: type, key: str, where: str = "--set") -> Any:
    """The declared type at a dotted key."""
    hint: Any = cls
    walked: list[str] = []
    for part in key.split("."):
        if get_origin(hint) in (dict, Mapping):
            return get_args(hint)[1]  # the rest of the key names an entry of the table, dots and all
        elif is_dataclass(hint):
            known = strict.field_types(hint)  # type: ignore[arg-type]
            if part not in known:
                prefix = ".".join(walked)
                full = [f"{prefix}.{k}" if prefix else k for k in known]
                raise unknown_name("setting", key, full if walked else known_keys(cls), where)
            hint = known[part]
        else:
            raise unknown_name("setting", key, known_keys(cls), where)
        walked.append(part)
    if is_dataclass(hint):
        raise UserError(
            f"{key} is a group of settings, not one.",
            f"Set one of: {', '.join(known_keys(hint)[:8])}.",  # type: ignore[arg-type]
        )
    return hint


def known_keys(cls: type, prefix: str = "") -> list[str]:
    """Every dotted key of a profile or site, in order."""
    keys: list[str] = []
    for name, hint in strict.field_types(cls).items():
        if is_dataclass(hint):
            keys += known_keys(hint, f"{prefix}{name}.")  # type: ignore[arg-type]
        else:
            keys.append(f"{prefix}{name}")
    return keys


def parse(hint: Any, text: str, where: str, key: str) -> Any:
    """Text as the type of a field. Empty text is None where that is allowed, and the empty value elsewhere."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if text.strip().lower() in _NONE:
            return None
        (inner,) = [a for a in arguments if a is not type(None)]
        return parse(inner, text, where, key)
    if hint is Any:
        return _guessed(text)
    if hint is bool:
        return _bool(text, where, key)
    if hint in (int, float):
        return _number(hint, text, where, key)
    if origin is tuple:
        return strict.convert(hint, _list(text, where, key), where, key)
    if origin in (dict, Mapping):
        return strict.convert(hint, _table(text, where, key), where, key)
    if origin is Literal and isinstance(arguments[0], int):
        return strict.convert(hint, _number(int, text, where, key), where, key)
    return strict.convert(hint, text, where, key)


def _bool(text: str, where: str, key: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise UserError(f"{key} in {where} must be true or false, not {text!r}.", "")


_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}
_MOST_DIGITS = 18  # a whole number of more is a slip of the hand; build.py holds each setting's own limit


def _number(hint: type, text: str, where: str, key: str) -> int | float:
    """A number, also with separators (4_000, 4,000) or a decimal suffix (300B = 3e11).

    A whole number never passes through a float, which would change its last digits.
    """
    plain = text.strip().replace("_", "").replace(",", "")
    scale = _SUFFIXES.get(plain[-1:].lower(), 1)
    digits = plain[:-1] if scale != 1 else plain
    if hint is int:
        return _whole(digits, scale, text, where, key)
    try:
        value = float(digits) * scale
    except ValueError as error:
        raise UserError(f"{key} in {where} must be a number, not {_cut(text)}.", "") from error
    if not math.isfinite(value):
        raise UserError(f"{key} in {where} must be a number, not {_cut(text)}.", "")
    return value


def _whole(digits: str, scale: int, text: str, where: str, key: str) -> int:
    wanted = f"{key} in {where} must be a whole number"
    try:
        written = Decimal(digits)
    except InvalidOperation as error:
        raise UserError(f"{wanted}, not {_cut(text)}.", "") from error
    if not written.is_finite():
        raise UserError(f"{wanted}, not {_cut(text)}.", "")
    if written.adjusted() >= _MOST_DIGITS:  # before any arithmetic: 1e999999999 would fill the memory
        raise UserError(f"{wanted} of at most {_MOST_DIGITS} digits, not {_cut(text)}.", "")
    if written and written.adjusted() < -_MOST_DIGITS:
        raise UserError(f"{wanted}, not {_cut(text)}.", "Take 0.")
    value = Fraction(written) * scale
    if value.denominator != 1:
        raise UserError(f"{wanted}, not {_cut(text)}.", f"Take {round(value)}.")
    return value.numerator


def _cut(text: str) -> str:
    """What was typed, short enough for one sentence."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def _list(text: str, where: str, key: str) -> list[str]:
    if text.strip().startswith("["):
        return list(_json(text, where, key, list))
    return [part.strip() for part in text.split(",") if part.strip()]


def _table(text: str, where: str, key: str) -> dict[str, Any]:
    if text.strip().startswith("{"):
        return dict(_json(text, where, key, dict))
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise UserError(f"{key} in {where} must be NAME=VALUE pairs with commas, not {text!r}.", "")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _json(text: str, where: str, key: str, wanted: type) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{key} in {where} is not valid JSON: {error.msg}.", "Check the quotes and brackets."
        ) from error
    if not isinstance(value, wanted):
        raise UserError(f"{key} in {where} must be a {wanted.__name__}, not {text!r}.", "")
    return value


def _guessed(text: str) -> Any:
    """A layout value: null, boolean, whole number, number or a word."""
    word = text.strip().lower()
    if word in {"", "none", "null"}:
        return None if word != "none" else "none"
    if word in {"true", "false"}:
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return text.strip()


def _replaced(base: Any, parts: list[str], value: Any) -> Any:
    head, rest = parts[0], parts[1:]
    if isinstance(base, Mapping):
        key = ".".join(parts)
        return {**base, key: value}
    if not rest:
        return replace(base, **{head: value})
    return replace(base, **{head: _replaced(getattr(base, head), rest, value)})
