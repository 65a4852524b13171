"""Owns plain text tables: widths, cutting for narrow terminals, and making foreign text harmless. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

GAP = 2
# A column is never cut below this many cells.
LEAST = 6


def clean(text: str, keep: str = "") -> str:
    """Text with control characters, escape sequences and direction marks made visible instead of obeyed."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _visible(c) for c in text)


def _visible(character: str) -> str:
    if character.isspace():
        return " "
    return character.encode("unicode_escape").decode("ascii")


def cells(text: str) -> int:
    """Terminal cells of a text: wide East Asian characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def words(value: Any) -> str:
    """A value as a cell shows it: "-" for unknown."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def layout_table(
    headers: Sequence[str], rows: Sequence[Sequence[Any]], right: set[int], width: int | None
) -> list[str]:
    """Header and rows as aligned lines, cut to the width (None: never cut). No trailing blanks."""
    table = [[clean(h) for h in headers], *[[clean(words(v)) for v in row] for row in rows]]
    widths = [max(cells(row[i]) for row in table) for i in range(len(headers))]
    if width is not None:
        widths = _narrowed(widths, width)
    return [
        (" " * GAP).join(_cell(text, widths[i], i in right) for i, text in enumerate(row)).rstrip()
        for row in table
    ]


def _narrowed(widths: list[int], width: int) -> list[int]:
    """Take cells from the widest column until the line fits, or nothing is left to take."""
    widths = list(widths)
    while sum(widths) + GAP * (len(widths) - 1) > width:
        widest = max(range(len(widths)), key=lambda i: widths[i])
        if widths[widest] <= LEAST:
            break
        widths[widest] -= 1
    return widths


def _cell(text: str, width: int, right: bool) -> str:
    if cells(text) > width:
        text = _cut(text, width)
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks


def _cut(text: str, width: int) -> str:
    """The text's start and "~" within the width."""
    taken = ""
    for character in text:
        if cells(taken + character) > width - 1:
            break
        taken += character
    return taken + "~"
