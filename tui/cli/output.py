"""Owns what reaches the terminal: data on stdout, messages on stderr, never a raw control character from elsewhere."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tui.cli.table import clean, layout_table


def emit_json(data: Mapping[str, Any]) -> None:
    """One JSON object on stdout: indented for a person, one line for a pipe."""
    indent = 2 if sys.stdout.isatty() else None
    sys.stdout.write(json.dumps(plain(data), indent=indent, allow_nan=False, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def emit_json_line(data: Mapping[str, Any]) -> None:
    """One JSON object on one line, at once: for streams."""
    sys.stdout.write(json.dumps(plain(data), allow_nan=False, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    """JSON data without numbers that JSON does not know: NaN and infinity become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (str, int, bool)) or value is None:
        return value
    if hasattr(value, "item"):  # a NumPy scalar
        return plain(value.item())
    return str(value)


def show(text: str = "") -> None:
    """A line of data for people, on stdout."""
    sys.stdout.write(clean(text) + "\n")


def show_table(headers: Sequence[str], rows: Sequence[Sequence[Any]], right: str = "") -> None:
    """Aligned columns on stdout; `right` holds the letters of headers' indices to align right, as "0,2"."""
    numbers = {int(i) for i in right.split(",") if i}
    lines = layout_table(headers, rows, numbers, width())
    for i, line in enumerate(lines):
        sys.stdout.write((bold(line) if i == 0 else line) + "\n")


def say(text: str) -> None:
    """A message, on stderr."""
    sys.stderr.write(clean(text, keep="\n") + "\n")
    sys.stderr.flush()


def width() -> int | None:
    """Columns of the terminal, or None when stdout is no terminal: then nothing is cut."""
    if not sys.stdout.isatty():
        return None
    return max(20, shutil.get_terminal_size((80, 24)).columns)


def bold(text: str) -> str:
    """Text in bold where the terminal can and the user has not said NO_COLOR."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return text
    return f"\x1b[1m{text}\x1b[0m"


def can_ask(yes: bool, as_json: bool) -> bool:
    """Whether a person is at the terminal and has not forbidden questions."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not (yes or as_json)
