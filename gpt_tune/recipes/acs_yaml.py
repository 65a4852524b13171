"""Owns writing YAML: mappings, lists and scalars, every text in double quotes so that nothing of it is YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpt_tune.errors import UserError

# Outside YAML 1.1's printable characters, or a line break to some of its readers.
_ESCAPED = re.compile(
    '[^\x20-\x7e\u00a0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\\\\"\u2028\u2029]'
)
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def dump(*documents: Mapping[str, Any]) -> bytes:
    """YAML documents, each with a line of dashes in front."""
    lines = [line for document in documents for line in ("---", *_block(document, 0))]
    return ("\n".join(lines) + "\n").encode("utf-8")


def text(value: str) -> str:
    """A text as a YAML scalar. UserError for what no YAML can hold: half a character."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(f"A value is not valid Unicode: {value[:40]!r}.", "Type it again.") from error
    return '"' + _ESCAPED.sub(_escape, value) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return text(value)
    raise TypeError(f"{type(value).__name__} has no place in a manifest")


def _key(key: str) -> str:
    return key if _KEY.fullmatch(key) else text(key)


def _block(value: Mapping[str, Any], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield f"{pad}{_key(key)}:"
            yield from _block(item, depth + 1)
        elif isinstance(item, Sequence) and not isinstance(item, str) and item:
            yield f"{pad}{_key(key)}:"
            yield from _list(item, depth + 1)
        elif isinstance(item, (Mapping, Sequence)) and not isinstance(item, str):
            yield f"{pad}{_key(key)}: {'{}' if isinstance(item, Mapping) else '[]'}"
        else:
            yield f"{pad}{_key(key)}: {_scalar(item)}"


def _list(items: Sequence[Any], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for item in items:
        if isinstance(item, Mapping):
            first, *rest = _block(item, depth + 1)
            yield f"{pad}- {first.strip()}"
            yield from rest
        else:
            yield f"{pad}- {_scalar(item)}"
