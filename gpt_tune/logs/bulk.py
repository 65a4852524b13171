"""Owns reading many ` key: value | ` lines of one shape at once: same text around the digits, so columns of digits.

A template is learned from a line that the ordinary reader has read, and used only if it gives the same figures for
that line. Lines that do not fit a template are left to the ordinary reader, so results never differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from gpt_tune.logs.columns import KINDS, Column, Floats
from gpt_tune.logs.formats.megatron import COUNTS, NUMBERS, Draft, close, main_loss_key, split_records
from gpt_tune.logs.scan import Block

Bools = NDArray[np.bool_]

FEW = 8  # rows of one length that are worth a template
MAX_TEMPLATES = 64
MAX_ROW = 4096
LONG_PREFIX = 200
MAX_PREFIXES = 8
_EXACT_POWER = 22  # 10^22 is the largest power of ten that a double holds exactly
_POWERS = 10.0 ** np.arange(_EXACT_POWER + 1)
_NUMBER = re.compile(r"^(\s*)(-?)(\d+)(?:\.(\d+))?(?:[eE]([-+])(\d\d))?(\s*)$")
_ITERATION = re.compile(r"iteration\s{1,16}(\d{1,12})\s{0,2}/\s{0,12}(\d{1,12})\s{0,4}$")


class Region(NamedTuple):
    """Where a number's digits stand in a row. padded: leading blanks may become digits. name "": not used."""

    name: str
    digits: tuple[int, ...]
    decimals: int
    power: int  # of ten, to the field's unit
    negative: bool
    exponent: tuple[int, ...]
    exponent_negative: bool
    padded: bool


class Template:
    """The shape of a row: constant bytes, and regions of digits."""

    def __init__(self, row: bytes, regions: list[Region], kind: int) -> None:
        self.kind = kind  # index of KINDS
        self.regions = regions
        width = len(row) + -len(row) % 8
        mask = np.full(width, 0xFF, dtype=np.uint8)
        mask[len(row) :] = 0
        places: list[int] = []
        blank_left: list[int] = []  # places that may be padding
        firsts: set[int] = set()
        self._parts: list[
            tuple[slice, Floats, slice, Floats]
        ] = []  # of each region: digits, weights, exponent's
        for region in regions:
            start = len(places)
            firsts.add(start)
            if region.padded:
                blank_left += range(start, start + len(region.digits) - 1)
            places += region.digits
            middle = len(places)
            places += region.exponent
            self._parts.append(
                (
                    slice(start, middle),
                    _weights(middle - start),
                    slice(middle, len(places)),
                    _weights(len(places) - middle),
                )
            )
        mask[places] = 0
        self._text = np.frombuffer(row.ljust(width, b"\0"), dtype=np.uint8).view(np.uint64).copy()
        self._mask = mask.view(np.uint64)
        self._places = np.array(places, dtype=np.intp)
        self._may_be_blank = np.zeros(len(places), dtype=bool)
        self._may_be_blank[blank_left] = True
        self._inner = np.zeros(len(places), dtype=bool)  # places whose left neighbour is of the same number
        self._inner[[c for c in blank_left if c not in firsts]] = True

    def read(self, rows: NDArray[np.uint8]) -> tuple[Bools, dict[str, Floats]]:
        """Which rows (n, padded length) fit, and the figures of all of them by field."""
        different = rows.view(np.uint64) ^ self._text
        different &= self._mask
        same: Bools = np.bitwise_or.reduce(different, axis=1) == 0
        raw = rows.take(self._places, axis=1)
        digits = raw - np.uint8(ord("0"))
        bad = digits > 9
        if bad.any():
            blank = raw == ord(" ")
            bad &= ~(blank & self._may_be_blank)
            # Padding may only stand left of the digits: where a place is blank, the one left of it is too.
            bad[:, 1:] |= (blank[:, 1:] > blank[:, :-1]) & self._inner[1:]
            digits *= ~blank
            same &= ~bad.any(axis=1)
        numbers = digits.astype(np.float64)
        figures: dict[str, Floats] = {}
        for region, (whole, weights, power, power_weights) in zip(self.regions, self._parts):
            if not region.name:
                continue
            # Sums of up to 15 digits are exact in doubles.
            exponent = numbers[:, power] @ power_weights if region.exponent else None
            figures[region.name], exact = _shifted(numbers[:, whole] @ weights, exponent, region)
            if exact is not None:
                same &= exact
        return same, figures


@dataclass(slots=True)
class Heads:
    """Where on a line its record begins. Prefixes come in few lengths, which are tried for all lines at once."""

    lengths: list[int] = field(default_factory=list)

    def find(self, block: Block, head: bytes, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of `head` (8 bytes at least) on each line, -1 where it is not near its beginning."""
        eights = sliding_window_view(block.bytes, 8)
        wanted = np.frombuffer(head[:8], dtype=np.uint64)[0]
        begins = np.full(len(starts), -1, dtype=np.int64)
        left = np.arange(len(starts))
        for length in self.lengths:
            here = eights[starts[left] + length].view(np.uint64).ravel() == wanted
            begins[left[here]] = starts[left[here]] + length
            left = left[~here]
            if not len(left):
                return begins
        for row in left.tolist():
            start = int(starts[row])
            place = block.text.find(head, start, start + LONG_PREFIX)
            begins[row] = place
            if place >= 0 and place - start not in self.lengths and len(self.lengths) < MAX_PREFIXES:
                self.lengths.append(place - start)
        return begins


@dataclass(slots=True)
class Templates:
    """Templates learned so far, by row length."""

    by_length: dict[int, list[Template]] = field(default_factory=dict)
    count: int = 0

    def read(
        self, block: Block, begins: NDArray[np.int64], stops: NDArray[np.int64]
    ) -> tuple[Bools, dict[str, Column], NDArray[np.int8]]:
        """Decodes what it can of rows [begin, stop): which rows, their columns, their TFLOPS kinds."""
        total = len(begins)
        fits = np.zeros(total, dtype=bool)
        kinds = np.zeros(total, dtype=np.int8)
        columns: dict[str, Column] = {}
        lengths = stops - begins
        for length in np.unique(lengths).tolist():
            where = np.flatnonzero(lengths == length)
            if not (len(where) >= FEW or length in self.by_length) or not 0 < length <= MAX_ROW:
                continue
            padded = length + -length % 8
            rows = sliding_window_view(block.bytes, padded)[begins[where]]
            left = np.ones(len(where), dtype=bool)
            for template in self.by_length.get(length, []):
                self._take(template, rows, where, left, fits, kinds, columns)
            while left.sum() >= FEW and self.count < MAX_TEMPLATES:
                row = int(begins[where[np.flatnonzero(left)[0]]])
                made = learn(bytes(block.text[row : row + length]))
                if made is None:
                    break
                self.by_length.setdefault(length, []).append(made)
                self.count += 1
                self._take(made, rows, where, left, fits, kinds, columns)
        return fits, columns, kinds

    @staticmethod
    def _take(
        template: Template,
        rows: NDArray[np.uint8],
        where: NDArray[np.intp],
        left: Bools,
        fits: Bools,
        kinds: NDArray[np.int8],
        columns: dict[str, Column],
    ) -> None:
        """Puts what a template can read of the rows that are left into the columns."""
        if not left.any():
            return
        same, figures = template.read(rows)
        fresh = same & left
        took = where[fresh]
        left[fresh] = False
        fits[took] = True
        kinds[took] = template.kind
        for name, values in figures.items():
            column = columns.get(name)
            if column is None:
                column = columns[name] = (np.full(len(fits), np.nan), np.ones(len(fits), dtype=bool))
            column[0][took] = values[fresh]
            column[1][took] = False


def _as_row(row: bytes) -> NDArray[np.uint8]:
    padded = np.frombuffer(row + b"\0" * (-len(row) % 8), dtype=np.uint8)
    return np.array(padded.reshape(1, -1))


def learn(row: bytes) -> Template | None:
    """The template of a row, or None when the row has something a template cannot hold."""
    if not row.isascii():
        return None
    text = row.decode()
    records = list(split_records(text))
    if len(records) != 1 or not records[0][1] or not text.rstrip().endswith("|"):
        return None
    draft = records[0][0]
    loss_key = main_loss_key(draft.losses)
    if loss_key is None or draft.closed:
        return None  # what a missing loss means depends on other fields
    regions = _regions(text, loss_key)
    if regions is None:
        return None
    template = Template(row, regions, KINDS.index(draft.step.logged_tflops_kind))
    return template if _agrees(template, row, draft) else None


def _regions(text: str, loss_key: str) -> list[Region] | None:
    regions: list[Region] = []
    start = 0
    for segment in text.split("|")[:-1]:
        match = _ITERATION.search(segment)
        if match is not None:
            for group, name in ((1, "iteration"), (2, "total_iterations")):
                left = _pad_start(segment, match.start(group))
                region = _region(segment[left : match.end(group)], start + left, name, 0)
                if region is None:
                    return None
                regions.append(region)
        elif ":" in segment:
            key, _, value = segment.rpartition(":")
            name, power = _field_of(key.strip(), loss_key)
            at = start + len(key) + 1
            # One blank after the colon belongs to the text; further ones are padding.
            lead = 1 if value.startswith(" ") else 0
            region = _region(value[lead:].rstrip(), at + lead, name, power)
            if region is not None:
                regions.append(region)
            elif name:
                return None
        start += len(segment) + 1
    return regions


def _pad_start(segment: str, digits: int) -> int:
    """Where the padding of a number begins: after the first blank or slash before it."""
    left = digits
    while left > 0 and segment[left - 1] == " ":
        left -= 1
    return left + 1 if left < digits and segment[left - 1] != "/" else left


def _field_of(key: str, loss_key: str) -> tuple[str, int]:
    if key in NUMBERS:
        return NUMBERS[key]
    if key in COUNTS:
        return COUNTS[key], 0
    return ("loss", 0) if key == loss_key else ("", 0)


def _region(value: str, at: int, name: str, power: int) -> Region | None:
    match = _NUMBER.match(value)
    if match is None:
        return None
    pad, sign, whole, fraction, exponent_sign, exponent, _ = match.groups()
    first = at + len(pad) + len(sign)
    digits = list(range(first, first + len(whole)))
    end = first + len(whole)
    if fraction is not None:
        digits += range(end + 1, end + 1 + len(fraction))
        end += 1 + len(fraction)
    padded = fraction is None and exponent is None and not sign
    if padded:
        digits = list(range(at, at + len(pad))) + digits
    if len(digits) > 15 or abs(power - len(fraction or "")) > _EXACT_POWER:
        return None
    powers = tuple(range(end + 2, end + 4)) if exponent is not None else ()
    return Region(
        name, tuple(digits), len(fraction or ""), power, sign == "-", powers, exponent_sign == "-", padded
    )


def _weights(digits: int) -> Floats:
    return np.array([10.0**power for power in range(digits - 1, -1, -1)], dtype=np.float64)


def _shifted(whole: Floats, exponent: Floats | None, region: Region) -> tuple[Floats, Bools | None]:
    """whole x 10^(power - decimals + exponent), rounded once; and where that is exact (None: everywhere)."""
    shift = region.power - region.decimals
    sign = -1.0 if region.negative else 1.0
    if exponent is None:
        return sign * (whole * _POWERS[shift] if shift >= 0 else whole / _POWERS[-shift]), None
    first = exponent[0]
    if (exponent == first).all():  # as a rule a block has one
        shift += int(-first if region.exponent_negative else first)
        if abs(shift) > _EXACT_POWER:
            return whole, np.zeros(len(whole), dtype=bool)
        return sign * (whole * _POWERS[shift] if shift >= 0 else whole / _POWERS[-shift]), None
    shifts = (-exponent if region.exponent_negative else exponent).astype(np.int64) + shift
    size = _POWERS[np.minimum(np.abs(shifts), _EXACT_POWER)]
    return sign * np.where(shifts >= 0, whole * size, whole / size), np.abs(shifts) <= _EXACT_POWER


def _agrees(template: Template, row: bytes, draft: Draft) -> bool:
    """Whether the template reads its own row as the ordinary reader does."""
    fits, figures = template.read(_as_row(row))
    if not fits[0]:
        return False
    step = close(draft)
    fields = (
        "iteration",
        "total_iterations",
        "loss",
        *(name for name, _ in NUMBERS.values()),
        *COUNTS.values(),
    )
    for name in fields:
        want, column = getattr(step, name), figures.get(name)
        got = None if column is None else float(column[0])
        if (want is None) != (got is None) or (want is not None and float(want) != got):
            return False
    return True
