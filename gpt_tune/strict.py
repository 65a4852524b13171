"""Owns turning plain data (from TOML or JSON) into dataclasses, refusing whatever does not belong."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gpt_tune.errors import UserError, unknown_name

T = TypeVar("T")


@lru_cache(maxsize=128)
def field_types(cls: type) -> dict[str, Any]:
    """Field name -> declared type of a dataclass."""
    return get_type_hints(cls)


def from_dict(cls: type[T], data: Any, where: str, path: str = "") -> T:
    """A dataclass from a mapping. UserError names the place of an unknown key or a value of the wrong type.

    where: what the user knows the data by (a file). path: dotted keys walked so far.
    """
    if not isinstance(data, Mapping):
        raise _wrong(path or "the whole", where, "a table", data)
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    hints = field_types(cls)  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in names:
            place = f"[{path}] of {where}" if path else where
            raise unknown_name("key", str(key), names, place)
        values[key] = convert(hints[key], value, where, f"{path}.{key}" if path else str(key))
    _require(cls, values, where, path)
    return cls(**values)


def _require(cls: type, values: Mapping[str, Any], where: str, path: str) -> None:
    missing = [
        f.name
        for f in dataclasses.fields(cls)
        if f.name not in values
        and f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        dotted = ", ".join(f"{path}.{m}" if path else m for m in missing)
        raise UserError(f"{where} lacks {dotted}.", "Add it.")


def convert(hint: Any, value: Any, where: str, path: str) -> Any:
    """One value as the type that a field declares."""
    if hint is Any:
        return value
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _optional(arguments, value, where, path)
    if origin is Literal:
        return _choice(arguments, value, where, path)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_dict(hint, value, where, path)
    if origin is tuple:
        return _tuple(arguments, value, where, path)
    if origin in (dict, Mapping):
        return _mapping(arguments, value, where, path)
    return _scalar(hint, value, where, path)


def _optional(arguments: tuple[Any, ...], value: Any, where: str, path: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    (inner,) = [a for a in arguments if a is not type(None)]
    return convert(inner, value, where, path)


def _choice(allowed: tuple[Any, ...], value: Any, where: str, path: str) -> Any:
    if value in allowed and isinstance(value, type(allowed[0])):
        return value
    if isinstance(value, str):
        raise unknown_name(path, value, [str(a) for a in allowed if a != ""], where)
    raise _wrong(path, where, "one of " + ", ".join(repr(a) for a in allowed), value)


def _tuple(arguments: tuple[Any, ...], value: Any, where: str, path: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(path, where, "a list", value)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(convert(arguments[0], v, where, f"{path}[{i}]") for i, v in enumerate(value))
    if len(value) != len(arguments):
        raise _wrong(path, where, f"a list of {len(arguments)}", value)
    return tuple(
        convert(a, v, where, f"{path}[{i}]") for i, (a, v) in enumerate(zip(arguments, value, strict=True))
    )


def _mapping(arguments: tuple[Any, ...], value: Any, where: str, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(path, where, "a table", value)
    return {str(k): convert(arguments[1], v, where, f"{path}.{k}") for k, v in value.items()}


_WORDS = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}


def _scalar(hint: Any, value: Any, where: str, path: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise _wrong(path, where, _WORDS[hint], value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(path, where, "a finite number", value)
    return value


def _wrong(path: str, where: str, wanted: str, value: Any) -> UserError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return UserError(f"{path} in {where} must be {wanted}, not {shown}.", "")
