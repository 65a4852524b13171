"""Owns finding what differs between two pictures made of lines, so that only that is sent to the terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Region

from tui.widgets.paint import Line, line_width

BLANK = (" ", "")


def changed_regions(before: Sequence[Line], after: Sequence[Line], width: int) -> list[Region]:
    """The stretch of each line that changed, in cells; only one: more would cost more than what lies between."""
    regions: list[Region] = []
    for y in range(max(len(before), len(after))):
        old = _cells(before[y], width) if y < len(before) else [BLANK] * width
        new = _cells(after[y], width) if y < len(after) else [BLANK] * width
        if old is None or new is None:
            regions.append(Region(0, y, width, 1))
            continue
        differ = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        if differ:
            regions.append(Region(differ[0], y, differ[-1] - differ[0] + 1, 1))
    return regions


def _cells(line: Line, width: int) -> list[tuple[str, str]] | None:
    """A character and its role for each cell of a row; None where characters are wider than cells."""
    cells = [(char, role) for text, role in line for char in text]
    if line_width(line) != len(cells):
        return None
    return (cells + [BLANK] * (width - len(cells)))[:width]
