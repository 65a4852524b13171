"""Owns one run segment of a log: its steps, the newest as records, the others packed."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from gpt_tune.logs.columns import Chunk, Column, Floats, chunk_of
from gpt_tune.logs.types import Step

MERGED = (
    "step_time_ms", "loss", "learning_rate", "grad_norm", "loss_scale", "logged_tflops", "logged_tflops_kind",
    "model_tflops", "tokens_per_second_per_gpu", "samples_per_second", "skipped", "nan", "consumed_samples",
    "global_batch_size", "total_iterations",
)  # fmt: skip


@dataclass(slots=True)
class Segment:
    """One run of the log, from its start or from a checkpoint to its end or crash."""

    index: int
    resumed_from: int | None = None
    first: int = -1
    last: int = -1
    total: int | None = None
    first_time: float | None = None
    last_time: float | None = None
    chunks: list[Chunk] = field(default_factory=list)
    rows: dict[int, Step] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)
    priorities: dict[int, int] = field(default_factory=dict)
    packed_rows: int = 0
    late: dict[int, Step] = field(default_factory=dict)  # packed rows that were completed since, by iteration
    attempt: int = 0  # of a launcher that starts its ranks again
    begun_by: tuple[str, str] | None = None  # the file and the format of its first step
    header_of: str | None = None  # the file whose start-up text came before this run

    def __len__(self) -> int:
        return self.packed_rows + len(self.rows)

    @property
    def empty(self) -> bool:
        return not self.rows and not self.chunks

    def holds(self, iteration: int) -> Step | None:
        """The step of this iteration, if the segment has it."""
        return self.rows.get(iteration) or self.packed_step(iteration)

    def packed_step(self, iteration: int) -> Step | None:
        """A copy of the packed step of this iteration, completed by what has come since."""
        if iteration in self.late:
            return self.late[iteration]
        if not self.chunks or iteration > self.chunks[-1].last:
            return None
        chunk = self.chunks[bisect.bisect_left([c.last for c in self.chunks], iteration)]
        return None if iteration < chunk.first else chunk.step(self.index, iteration)

    def covers(self, columns: Mapping[str, Column]) -> bool:
        """Whether all these rows are packed here, with every figure that they have."""
        iterations = columns["iteration"][0]
        if not self.chunks or iterations[-1] > self.chunks[-1].last:
            return False
        chunks = [c for c in self.chunks if c.last >= iterations[0] and c.first <= iterations[-1]]
        for name, (_, missing) in columns.items():
            if name != "iteration" and not missing.all() and not all(c.is_full(name) for c in chunks):
                return False
        held = [c.column("iteration") for c in chunks]
        return bool(held) and bool(np.isin(iterations, np.concatenate(held)).all())

    def pack(self, keep: int) -> None:
        """Packs all but the newest rows."""
        order = sorted(self.rows)
        old = order[: len(order) - keep] if keep else order
        if not old:
            return
        steps = [self.rows.pop(i) for i in old]
        for iteration in old:
            self.times.pop(iteration, None)
            self.priorities.pop(iteration, None)
        if self.chunks and old[0] <= self.chunks[-1].last:
            steps = self.insert_packed(steps)
        if steps:
            self.append_chunk(chunk_of(steps))

    def settle(self) -> None:
        """Packs what was completed late."""
        if self.late:
            late, self.late = list(self.late.values()), {}
            self.insert_packed(late)

    def append_chunk(self, chunk: Chunk) -> None:
        """Adds steps newer than all others."""
        self.chunks.append(chunk)
        self.packed_rows += len(chunk)

    def insert_packed(self, steps: list[Step]) -> list[Step]:
        """Adds rows older than what is packed, rebuilding their chunks; gives back the newer ones."""
        newest = self.chunks[-1].last
        lasts = [c.last for c in self.chunks]
        by_chunk: dict[int, list[Step]] = {}
        for step in steps:
            if step.iteration <= newest:
                by_chunk.setdefault(bisect.bisect_left(lasts, step.iteration), []).append(step)
        for index, late in by_chunk.items():
            by_iteration = {s.iteration: s for s in self.chunks[index].steps(self.index)}
            for step in late:
                known = by_iteration.get(step.iteration)
                if known is not None and known is not step:
                    fill(step, known)
                by_iteration[step.iteration] = step
            self.packed_rows += len(by_iteration) - len(self.chunks[index])
            self.chunks[index] = chunk_of([by_iteration[i] for i in sorted(by_iteration)])
        return [s for s in steps if s.iteration > newest]


def segment_blocks(segment: Segment, names: tuple[str, ...]) -> Iterator[dict[str, Floats]]:
    for chunk in segment.chunks:
        yield {n: chunk.column(n) for n in ("iteration", *names)}
    if segment.rows:
        order = [segment.rows[i] for i in sorted(segment.rows)]
        yield {n: column_of([getattr(s, n) for s in order]) for n in ("iteration", *names)}


def column_of(values: list[float | None]) -> Floats:
    return np.array([math.nan if v is None else v for v in values], dtype=np.float64)


def segment_steps(segment: Segment) -> Iterator[Step]:
    for chunk in segment.chunks:
        yield from chunk.steps(segment.index)
    for iteration in sorted(segment.rows):
        yield segment.rows[iteration]


def fill(known: Step, new: Step) -> bool:
    """Fills what is missing; whether anything was."""
    filled = False
    for name in MERGED:
        if getattr(known, name) is None:
            value = getattr(new, name)
            if value is not None:
                setattr(known, name, value)
                filled = True
    return filled


def override(known: Step, new: Step) -> None:
    """Takes over everything the new record states."""
    for name in MERGED:
        value = getattr(new, name)
        if value is not None:
            setattr(known, name, value)
