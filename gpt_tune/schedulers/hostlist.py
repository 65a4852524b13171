"""Owns Slurm's hostlist notation: `n[001-004,007],gpu-a-[1-2]` to names and back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

_NUMBERED = re.compile(r"^(.*?)(\d+)$")


def expand(text: str) -> list[str]:
    """The names a hostlist stands for, in its order. Text that is no hostlist comes back as one name."""
    return [name for part in split_outside(text, "[", "]") for name in _expand_part(part)]


def compress(names: Iterable[str]) -> str:
    """A hostlist for `names`, sorted by prefix and number."""
    plain: list[str] = []
    numbered: list[tuple[str, int, int]] = []  # prefix, digits of a zero-padded number (or 0), number
    for name in set(names):
        match = _NUMBERED.match(name)
        if match is None:
            plain.append(name)
        else:
            prefix, digits = match.groups()
            numbered.append((prefix, len(digits) if digits.startswith("0") else 0, int(digits)))
    parts = sorted(plain)
    for (prefix, width), group in groupby(sorted(_with_width(numbered)), key=lambda n: n[:2]):
        ranges = _ranges([n[2] for n in group], width)
        parts.append(f"{prefix}{ranges}" if re.fullmatch(r"\d+", ranges) else f"{prefix}[{ranges}]")
    return ",".join(parts)


def split_outside(text: str, opening: str, closing: str) -> list[str]:
    """`text` cut at the commas that are not between `opening` and `closing`; empty parts left out."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character == opening) - (character == closing)
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [p.strip() for p in [*parts, current] if p.strip()]


def _with_width(numbered: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """`010` and `100` are of one series when the padded ones have that many digits."""
    padded = {(prefix, width) for prefix, width, _ in numbered if width}
    return [
        (prefix, len(str(n)) if not width and (prefix, len(str(n))) in padded else width, n)
        for prefix, width, n in numbered
    ]


def _ranges(numbers: list[int], width: int) -> str:
    parts = []
    start = previous = numbers[0]
    for n in [*numbers[1:], None]:
        if n is not None and n == previous + 1:
            previous = n
            continue
        first, last = f"{start:0{width}d}", f"{previous:0{width}d}"
        parts.append(first if start == previous else f"{first}-{last}")
        if n is not None:
            start = previous = n
    return ",".join(parts)


def _expand_part(part: str) -> list[str]:
    opening = part.find("[")
    closing = part.find("]", opening)
    if opening < 0 or closing < 0:
        return [part]
    head, inside, tail = part[:opening], part[opening + 1 : closing], part[closing + 1 :]
    tails = _expand_part(tail) if tail else [""]
    return [f"{head}{number}{end}" for number in _expand_numbers(inside) for end in tails]


def _expand_numbers(inside: str) -> list[str]:
    numbers: list[str] = []
    for item in inside.split(","):
        first, dash, last = item.strip().partition("-")
        if dash and first.isdigit() and last.isdigit():
            width = len(first)
            numbers += [f"{n:0{width}d}" for n in range(int(first), int(last) + 1)]
        elif item.strip():
            numbers.append(item.strip())
    return numbers
