"""Owns horizontal bars made of parts: a step time by cause, a GPU's memory by what holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tui.widgets.paint import Line, Span
from tui.widgets.words import three

# Each part has a letter as well as a colour, so a bar reads without colour too.
FULL = "█"
ROLES = 9  # roles part-0 to part-8 (roles.py)
PALE = "▓"  # within the interval: perhaps less is needed


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a bar; letter stands for it where colours cannot."""

    name: str
    value: float
    letter: str


def shares(values: Sequence[float], cells: int, whole: float) -> list[int]:
    """Cells for each value; rounding errors never add up, and nothing above 2 % of the whole vanishes."""
    if whole <= 0 or cells <= 0:
        return [0] * len(values)
    out: list[int] = []
    total = 0.0
    for value in values:
        total += max(value, 0.0)
        out.append(max(min(round(total / whole * cells), cells) - sum(out), 0))
    for i, value in enumerate(values):
        biggest = max(range(len(out)), key=out.__getitem__)
        if not out[i] and value / whole > 0.02 and out[biggest] > 1:
            out[biggest] -= 1
            out[i] = 1
    return out


def stacked(parts: Sequence[Part], cells: int, whole: float | None = None, letters: bool = False) -> Line:
    """The parts as one bar of at most `cells`."""
    whole = whole if whole is not None else sum(p.value for p in parts)
    line: list[Span] = []
    for i, (part, size) in enumerate(zip(parts, shares([p.value for p in parts], cells, whole), strict=True)):
        if size:
            line.append(((part.letter if letters else FULL) * size, f"part-{i % ROLES}"))
    return line


def legend(parts: Sequence[Part], unit: str, letters: bool = False) -> Line:
    """`█ compute 2.6  █ bubble 0.4 s`, in the bar's order; what is under 0.5 % of the whole is left out."""
    whole = sum(p.value for p in parts)
    line: list[Span] = []
    for i, part in enumerate(parts):
        if part.value > 0.005 * whole:
            line += [
                (part.letter if letters else FULL, f"part-{i % ROLES}"),
                (f"\u00a0{part.name}\u00a0{two(part.value)}  ", ""),
            ]
    return [*line, (unit, "muted")] if line else []


def two(value: float) -> str:
    """Two significant figures below 100, whole numbers above: 7.1, 0.64, 132."""
    return (
        f"{value:.0f}" if value >= 10 else three(value)[:-1].rstrip(".") if value >= 0.001 else three(value)
    )


def against_limit(
    parts: Sequence[Part],
    high: float,
    limit: float | None,
    cells: int,
    letters: bool = False,
    low: float | None = None,
) -> Line:
    """Parts up to their sum, paler (`▓`) from the interval's lower end on, `░` where it reaches further, `┃` at
    the limit.

    low and high bound the sum. Everything is in the unit of the parts. What lies beyond the limit is drawn
    beyond the mark, so that "too much" is a shape and not only a colour.
    """
    total = sum(p.value for p in parts)
    scale = max(limit or 0.0, high, total) * (1.04 if limit and high <= limit else 1.0)
    if scale <= 0 or cells < 4:
        return []
    line = list(stacked(parts, round(total / scale * cells), total, letters))
    used = sum(len(text) for text, _ in line)
    if low is not None and not letters:
        line = _paler(line, max(round(low / scale * cells), 0))
    doubt = max(round(high / scale * cells) - used, 0)
    line.append(("░" * doubt, "unsure"))
    line.append((" " * max(cells - used - doubt, 0), ""))
    return line if limit is None else _mark(line, round(limit / scale * cells) - 1)


def _paler(line: Line, start: int) -> list[Span]:
    """Blocks from a cell on as `▓`: they may not be needed."""
    out: list[Span] = []
    at = 0
    for text, role in line:
        firm = min(max(start - at, 0), len(text))
        out += [(text[:firm], role), (text[firm:].replace(FULL, PALE), role)]
        at += len(text)
    return [span for span in out if span[0]]


def _mark(line: Line, at: int) -> Line:
    """Put the limit's sign over one cell of a bar."""
    out: list[Span] = []
    start = 0
    for text, role in line:
        if start <= at < start + len(text):
            cut = at - start
            out += [(text[:cut], role), ("┃", "bad"), (text[cut + 1 :], role)]
        else:
            out.append((text, role))
        start += len(text)
    return [span for span in out if span[0]]
