"""Owns refusing keys and tokens in what is kept on disk. It never prints or returns the secret itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpt_tune.errors import UserError

# Names of things that open doors. "tokenizer", "tokens" and "..._FILE" are none.
_NAME = re.compile(
    r"(?:^|[_\-.])(?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|credentials?)(?:$|[_\-.])"
    r"|apikey|secretkey|accesskey",
    re.IGNORECASE,
)
_PATH_NAME = re.compile(r"(?:_|-)(?:file|path|dir|name|helper)$", re.IGNORECASE)
# Shapes of well-known keys: Hugging Face, GitHub, OpenAI and alike, AWS, Slack, GitLab, JWT, PEM, URL with password.
_VALUE = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bsk-[A-Za-z0-9_\-]{20,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bxox[abprs]-[A-Za-z0-9\-]{10,}|\bglpat-[\w\-]{15,}"
    r"|\beyJ[\w\-]{10,}\.[\w\-]{10,}\.|-----BEGIN [A-Z ]*PRIVATE KEY|[a-z]+://[^/\s:@]+:[^/\s@$]+@"
)
# NAME=value or --name value inside a command line or script argument.
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=([^\s,;]+)")
_OPTION = re.compile(r"--?([A-Za-z][A-Za-z0-9\-_]*)[= ]+([^\s]+)")


def refuse_secrets(data: Mapping[str, Any], where: str) -> None:
    """UserError naming the first setting that holds a key or token."""
    for place, name, value in _texts(data, ""):
        culprit = _secret_name(name, value)
        if culprit is not None:
            shown = place if culprit == name else f"{culprit} (in {place})"
            raise UserError(
                f"{shown} in {where} looks like a secret; gpt-tune never stores keys or tokens.",
                f"Remove it and export {culprit if culprit.isidentifier() else 'it'} in the shell that submits: "
                "jobs inherit the environment.",
            )


def _texts(value: Any, place: str) -> Iterator[tuple[str, str, str]]:
    """Every text of nested data as (dotted place, its own name, the text)."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from _texts(inner, f"{place}[{i}]")
    elif isinstance(value, str) and value:
        yield place, place.rpartition(".")[2], value


def _secret_name(name: str, value: str) -> str | None:
    """The name that makes a text a secret, or None."""
    if _names_secret(name, value):
        return name
    for pattern in (_ASSIGNED, _OPTION):
        for inner, text in pattern.findall(value):
            if _names_secret(inner, text):
                return str(inner)
    return name if _VALUE.search(value) else None


def _names_secret(name: str, value: str) -> bool:
    if not _NAME.search(name) or _PATH_NAME.search(name):
        return False
    text = value.strip("\"'")
    return not (text.startswith("$") or text == "")
