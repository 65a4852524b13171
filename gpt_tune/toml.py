"""Owns reading and writing TOML, on every supported Python."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from gpt_tune.errors import UserError, shown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def parse(text: str, where: str) -> dict[str, Any]:
    """TOML text to a dict. Raises UserError naming `where` and the line."""
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(
            f"{where} is not valid TOML: {error}.", "Fix that line, or remove the file."
        ) from error
    return data


def load(path: Path) -> dict[str, Any]:
    """A TOML file as a dict. Raises UserError when it is missing, unreadable or invalid."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text.", "Give a TOML file.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"Cannot read {shown(str(path))}: {reason}.", "Check the path and its permissions."
        ) from error
    return parse(text, str(path))


def dump(data: Mapping[str, Any]) -> str:
    """A mapping as TOML text. None is left out, since TOML has no null."""
    return tomli_w.dumps(_without_none(data), multiline_strings=False)


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(v) for v in value]
    return value
