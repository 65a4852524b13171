"""Owns steps that were read as columns, until they go into the table: thousands at a time, gaps filled meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpt_tune.logs.columns import FLOATS, INTEGERS, KINDS, Column, Floats
from gpt_tune.logs.formats.base import Record
from gpt_tune.logs.table import StepTable
from gpt_tune.logs.types import Step

FLUSH_ROWS = 8192


@dataclass(slots=True)
class Aside:
    """A record of another engine for one of the gathered steps: it only fills what they lack."""

    record: Record
    label: str
    kind: str


@dataclass(slots=True)
class Gather:
    """Rows of one writer in rising order, not yet in the table."""

    source: str
    label: str
    kind: str
    last: int
    total: int | None
    last_time: float | None
    asides: list[Aside] = field(default_factory=list)
    rows: int = 0
    _blocks: list[tuple[dict[str, Column], NDArray[np.int8]]] = field(default_factory=list)

    def continues_with(self, columns: dict[str, Column]) -> bool:
        """Whether these rows rise from the last one on, in the same run."""
        iterations, totals = columns["iteration"][0], columns["total_iterations"][0]
        rising = iterations[0] > self.last and not (np.diff(iterations) <= 0).any()
        return bool(rising) and not (totals != self.total).any()

    def continues_as(self, step: Step, time: float | None, pause: float) -> bool:
        """The same of one step that was read the ordinary way; pause: seconds that end a run."""
        if step.iteration <= self.last or step.total_iterations != self.total:
            return False
        return self.last_time is None or time is None or abs(time - self.last_time) <= pause

    def add(self, columns: dict[str, Column], kinds: NDArray[np.int8], time: float | None) -> None:
        """Appends rows whose iterations rise from `last` on."""
        self._blocks.append((columns, kinds))
        self.rows += len(kinds)
        self.last = int(columns["iteration"][0][-1])
        self.last_time = time if time is not None else self.last_time

    def add_step(self, step: Step, time: float | None) -> None:
        """Appends one step read the ordinary way."""
        columns: dict[str, Column] = {}
        for name in ("iteration", *FLOATS, *INTEGERS):
            value = getattr(step, name)
            if value is not None:
                columns[name] = (np.array([float(value)]), np.zeros(1, dtype=bool))
        self.add(columns, np.array([KINDS.index(step.logged_tflops_kind)], dtype=np.int8), time)

    def into(self, table: StepTable, everything: bool) -> None:
        """Moves the rows into the table. everything: also asides whose step has not come."""
        if self.rows:
            columns, kinds = self._joined()
            self._fill(columns)
            table.extend(columns, kinds, self.source, self.label, self.kind, self.last_time)
            self._blocks, self.rows = [], 0
        if everything:
            for aside in self.asides:
                table.add(aside.record, self.source, aside.label, aside.kind)
            self.asides = []

    def fill(self) -> None:
        """Gives the rows what stands aside for them, where that has become much; they stay here."""
        if self.rows:
            columns, kinds = self._joined()
            self._fill(columns)
            self._blocks = [(columns, kinds)]

    def _joined(self) -> tuple[dict[str, Column], NDArray[np.int8]]:
        kinds = np.concatenate([k for _, k in self._blocks])
        columns: dict[str, Column] = {}
        for name in dict.fromkeys(n for block, _ in self._blocks for n in block):
            values: list[Floats] = []
            missing: list[NDArray[np.bool_]] = []
            for block, kind in self._blocks:
                column = block.get(name)
                values.append(np.full(len(kind), np.nan) if column is None else column[0])
                missing.append(np.ones(len(kind), dtype=bool) if column is None else column[1])
            columns[name] = (np.concatenate(values), np.concatenate(missing))
        return columns, kinds

    def _fill(self, columns: dict[str, Column]) -> None:
        iterations = columns["iteration"][0]
        kept: list[Aside] = []
        for aside in self.asides:
            step = aside.record.step
            row = int(np.searchsorted(iterations, step.iteration))
            if row >= len(iterations) or iterations[row] != step.iteration:
                kept.append(aside)
                continue
            for name in FLOATS + INTEGERS:
                value = getattr(step, name)
                if value is None:
                    continue
                column = columns.get(name)
                if column is None:
                    size = len(iterations)
                    column = columns[name] = (np.full(size, np.nan), np.ones(size, dtype=bool))
                if column[1][row]:
                    column[0][row], column[1][row] = value, False
        self.asides = kept
