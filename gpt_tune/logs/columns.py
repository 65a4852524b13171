"""Owns keeping millions of steps in little memory: chunks of columns, stored as small integers where exact."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt_tune.logs.types import Step, TflopsKind

Floats = NDArray[np.float64]
Column = tuple[Floats, NDArray[np.bool_]]  # values, and where nothing was printed

FLOATS = (
    "step_time_ms",
    "loss",
    "learning_rate",
    "grad_norm",
    "loss_scale",
    "logged_tflops",
    "model_tflops",
    "tokens_per_second_per_gpu",
    "samples_per_second",
)
INTEGERS = ("skipped", "nan", "consumed_samples", "global_batch_size", "total_iterations")
KINDS: tuple[TflopsKind | None, ...] = (None, "hardware", "model", "gqa_wrong", "unknown")
_MAX_DECIMALS = 15
_INTEGER_TYPES = (np.int8, np.int16, np.int32)


@dataclass(frozen=True, slots=True)
class Packed:
    """One column: base + data (integers) or data (floats), over 10^decimals. missing: where nothing was printed."""

    length: int
    data: NDArray[np.generic] | None  # None: every value is the base
    base: float
    decimals: int
    missing: NDArray[np.bool_] | None
    all_missing: bool = False

    def unpack(self) -> Floats:
        """Values, NaN where NaN was printed or nothing was."""
        if self.all_missing:
            return np.full(self.length, np.nan)
        if self.data is None:
            values = np.full(self.length, self.base)
        elif self.data.dtype.kind == "i":
            # Sum as int64, then one division: the same double that reading the decimal text gives.
            values = (self.data.astype(np.int64) + int(self.base)) / float(10**self.decimals)
        else:
            values = self.data.astype(np.float64)
        if self.missing is not None:
            values[self.missing] = np.nan
        return values

    def value(self, row: int) -> float | None:
        """One value; None where nothing was printed."""
        if self.all_missing or (self.missing is not None and self.missing[row]):
            return None
        if self.data is None:
            return self.base
        value = float(self.data[row]) if self.data.dtype.kind != "i" else int(self.data[row]) + int(self.base)
        return value / float(10**self.decimals) if self.data.dtype.kind == "i" else float(value)

    def missing_mask(self) -> NDArray[np.bool_]:
        if self.all_missing:
            return np.ones(self.length, dtype=bool)
        return self.missing if self.missing is not None else np.zeros(self.length, dtype=bool)


def pack(values: Floats, missing: NDArray[np.bool_]) -> Packed:
    """The smallest exact form of a column."""
    length = len(values)
    if missing.all():
        return Packed(length, None, math.nan, 0, None, True)
    gaps = missing if missing.any() else None
    present = values[~missing] if gaps is not None else values
    first = float(present[0])
    if not np.isnan(present).any() and (present == first).all():
        return Packed(length, None, first, 0, gaps)
    if np.isfinite(present).all():
        packed = _as_integers(np.where(missing, first, values), gaps)
        if packed is not None:
            return packed
    return Packed(length, values.copy(), 0.0, 0, gaps)


def _as_integers(values: Floats, gaps: NDArray[np.bool_] | None) -> Packed | None:
    largest = float(np.abs(values).max())
    for decimals in range(_MAX_DECIMALS + 1):
        power = float(10**decimals)
        if largest * power >= 2**53:
            return None
        whole = np.rint(values * power)
        # The first value alone settles most exponents.
        if whole[0] / power != values[0] or not np.array_equal(whole / power, values):
            continue
        base = int(whole.min())
        span = int(whole.max()) - base
        for dtype in _INTEGER_TYPES:
            if span <= np.iinfo(dtype).max:
                return Packed(len(values), (whole - base).astype(dtype), base, decimals, gaps)
        return None
    return None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Steps of one segment in rising order, packed."""

    iterations: Packed
    columns: Mapping[str, Packed]
    kinds: NDArray[np.int8] | None  # indexes of KINDS; None: all the same
    kind: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.iterations.length

    def column(self, name: str) -> Floats:
        if name == "iteration":
            return self.iterations.unpack()
        packed = self.columns.get(name)
        return packed.unpack() if packed is not None else np.full(len(self), np.nan)

    def is_full(self, name: str) -> bool:
        """Whether every row has this figure."""
        packed = self.columns.get(name)
        return packed is not None and packed.missing is None and not packed.all_missing

    def with_missing(self, name: str) -> Column:
        """A column, and where nothing was printed."""
        packed = self.iterations if name == "iteration" else self.columns.get(name)
        if packed is None:
            return np.full(len(self), np.nan), np.ones(len(self), dtype=bool)
        return packed.unpack(), packed.missing_mask()

    def step(self, segment: int, iteration: int) -> Step | None:
        """The row of this iteration as a record; None when there is none."""
        row = int(np.searchsorted(self.iterations.unpack(), iteration))
        if row >= len(self) or self.iterations.value(row) != iteration:
            return None
        kind = self.kind if self.kinds is None else int(self.kinds[row])
        step = Step(iteration, segment=segment, logged_tflops_kind=KINDS[kind])
        for name, packed in self.columns.items():
            value = packed.value(row)
            if value is not None and name in INTEGERS:
                setattr(step, name, None if value != value else int(value))
            elif value is not None:
                setattr(step, name, value)
        return step

    def steps(self, segment: int, first: int = 0) -> Iterator[Step]:
        """The rows as records again, from this one on."""
        iterations = self.iterations.unpack().astype(np.int64).tolist()
        lists: dict[str, list[float | int | None]] = {}
        for name, packed in self.columns.items():
            if packed.all_missing:
                continue
            values: list[float | int | None] = packed.unpack().tolist()
            if name in INTEGERS:
                values = [None if v is None or v != v else int(v) for v in values]
            elif packed.missing is not None:
                values = [None if m else v for v, m in zip(values, packed.missing.tolist())]
            lists[name] = values
        kinds = self.kinds.tolist() if self.kinds is not None else [self.kind] * len(self)
        for row in range(first, len(self)):
            iteration = iterations[row]
            step = Step(iteration, segment=segment, logged_tflops_kind=KINDS[kinds[row]])
            for name, column in lists.items():
                setattr(step, name, column[row])
            yield step


def chunk_of(steps: Sequence[Step]) -> Chunk:
    """Packs steps (rising iterations, at least one)."""
    columns = {}
    for name in FLOATS + INTEGERS:
        raw = [getattr(s, name) for s in steps]
        missing = np.array([v is None for v in raw])
        values = np.array([math.nan if v is None else v for v in raw], dtype=np.float64)
        columns[name] = (values, missing)
    iterations = np.array([s.iteration for s in steps], dtype=np.float64)
    kinds = np.array([KINDS.index(s.logged_tflops_kind) for s in steps], dtype=np.int8)
    return chunk_of_columns(iterations, columns, kinds)


def chunk_of_columns(iterations: Floats, columns: Mapping[str, Column], kinds: NDArray[np.int8]) -> Chunk:
    """Packs columns of (values, missing)."""
    packed = {name: pack(values, missing) for name, (values, missing) in columns.items()}
    present = {name: column for name, column in packed.items() if not column.all_missing}
    same = bool((kinds == kinds[0]).all())
    return Chunk(
        pack(iterations, np.zeros(len(iterations), dtype=bool)),
        present,
        None if same else kinds,
        int(kinds[0]),
        int(iterations[0]),
        int(iterations[-1]),
    )
