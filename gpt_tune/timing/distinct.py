"""Owns finding the distinct combinations in columns of small whole numbers, so that each is computed once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


# So few rows are cheaper to compute one by one than to compare.
FEW = 32


def distinct(columns: Sequence[Ints]) -> tuple[list[Ints], NDArray[np.intp]]:
    """The distinct rows of the columns (of few: all of them), and for each row the number of its distinct one.

    Columns of small numbers are turned into one code by mixed radix and found by marking, without sorting.
    """
    n = len(columns[0])
    if n <= FEW:
        return list(columns), np.arange(n)
    code = np.zeros(n, dtype=np.int64)
    values: list[Ints] = []
    size = 1
    for column in columns:
        known, index = _ranked(column)
        values.append(known)
        size *= max(1, len(known))
        if len(known) > 1:
            code = code * len(known) + index
    if size > max(4 * n, 1 << 16):
        codes, inverse = np.unique(code, return_inverse=True)
    else:
        codes, inverse = _marked(code, size)
    return _decode(codes, values), inverse


def _ranked(column: Ints) -> tuple[Ints, Ints]:
    """Sorted distinct values of a column, and each row's position among them."""
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    if low == high:
        return column[:1], column
    if high - low < 1 << 16:
        known, index = _marked(column - low if low else column, high - low + 1)
        return known + low, index
    known, inverse = np.unique(column, return_inverse=True)
    return known, inverse


def _marked(code: Ints, size: int) -> tuple[Ints, NDArray[np.intp]]:
    seen = np.zeros(size, dtype=np.bool_)
    seen[code] = True
    codes = np.flatnonzero(seen)
    position = np.zeros(size, dtype=np.intp)
    position[codes] = np.arange(len(codes))
    return codes, position[code]


def _decode(codes: Ints, values: Sequence[Ints]) -> list[Ints]:
    columns: list[Ints] = []
    for known in reversed(values):
        if len(known) > 1:
            codes, index = np.divmod(codes, len(known))
            columns.append(known[index])
        else:
            columns.append(np.full(len(codes), known[0] if len(known) else 0, dtype=np.int64))
    return columns[::-1]
