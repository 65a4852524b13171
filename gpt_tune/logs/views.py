"""Owns looking at the steps of a log: all that stand, the newest, or columns of them; what was done again is hidden."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpt_tune.logs.columns import Chunk, Column, Floats
from gpt_tune.logs.placing import is_fresh
from gpt_tune.logs.segment import Segment, column_of, segment_blocks, segment_steps
from gpt_tune.logs.types import Step


class StepViews:
    """What a table of segments shows."""

    segments: list[Segment]

    def limits(self) -> list[int | None]:
        """For each segment, the first iteration that a later resumed one did again (None: all stands)."""
        found: list[int | None] = [None] * len(self.segments)
        lineage: list[int] = []
        for segment in self.segments:
            if segment.empty:
                continue
            if lineage and is_fresh(segment, self.segments[lineage[0]]):
                lineage = []
            for earlier in lineage:
                limit = found[earlier]
                found[earlier] = segment.first if limit is None else min(limit, segment.first)
            lineage.append(segment.index)
        return found

    def steps(self) -> Iterator[Step]:
        """Every standing step: by segment, then by iteration."""
        for segment, limit in zip(self.segments, self.limits()):
            for step in segment_steps(segment):
                if limit is None or step.iteration < limit:
                    yield step

    def recent(self, count: int) -> list[Step]:
        """The newest steps of the newest segment, oldest first."""
        segment = self._newest()
        if segment is None or count <= 0:
            return []
        steps = [segment.rows[i] for i in sorted(segment.rows)[-count:]]
        for chunk in reversed(segment.chunks):
            if len(steps) >= count:
                break
            steps = [*list(chunk.steps(segment.index))[len(steps) - count :], *steps]
        return steps

    def tail(self, count: int, *names: str) -> dict[str, Column]:
        """The newest steps of the newest segment as columns, `iteration` included."""
        segment = self._newest()
        wanted = ("iteration", *names)
        if segment is None or count <= 0:
            return {name: (np.empty(0), np.empty(0, dtype=bool)) for name in wanted}
        rows = [segment.rows[i] for i in sorted(segment.rows)[-count:]]
        left = count - len(rows)
        chunks: list[Chunk] = []
        for chunk in reversed(segment.chunks):
            if left <= 0:
                break
            chunks.insert(0, chunk)
            left -= len(chunk)
        parts = {name: [chunk.with_missing(name) for chunk in chunks] for name in wanted}
        for name in wanted:
            listed = [getattr(step, name) for step in rows]
            parts[name].append((column_of(listed), np.array([v is None for v in listed], dtype=bool)))
        return {
            name: (
                np.concatenate([v for v, _ in part])[-count:],
                np.concatenate([m for _, m in part])[-count:],
            )
            for name, part in parts.items()
        }

    def _newest(self) -> Segment | None:
        return next((segment for segment in reversed(self.segments) if not segment.empty), None)

    def last(self) -> Step | None:
        """The newest step of the newest segment."""
        newest = self.recent(1)
        return newest[0] if newest else None

    def columns(self, *names: str) -> dict[str, Floats]:
        """Standing steps as arrays (NaN where nothing or NaN was printed), `iteration` and `segment` included."""
        names = tuple(dict.fromkeys(names))
        parts: dict[str, list[Floats]] = {n: [] for n in ("iteration", "segment", *names)}
        for segment, limit in zip(self.segments, self.limits()):
            for block in segment_blocks(segment, names):
                keep = slice(None) if limit is None else block["iteration"] < limit
                for name in ("iteration", *names):
                    parts[name].append(block[name][keep])
                parts["segment"].append(np.full(len(parts["iteration"][-1]), float(segment.index)))
        return {n: np.concatenate(p) if p else np.empty(0) for n, p in parts.items()}
