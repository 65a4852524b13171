"""Owns a parser and a diagnoser that read the same lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpt_tune.diagnosis.engine import Diagnoser
from gpt_tune.logs.follow import Batch
from gpt_tune.logs.parser import LogParser
from gpt_tune.logs.types import Step

MANY_LINES = 500  # at once: then they are read in bulk


@dataclass(slots=True)
class Readers:
    """A parser and a diagnoser that read the same lines."""

    parser: LogParser
    diagnoser: Diagnoser = field(default_factory=Diagnoser)

    def feed(self, batch: Batch, first_line: int | None) -> list[Step]:
        """New lines; the steps they gave."""
        self.diagnoser.feed(batch.lines, batch.source, first_line, batch.transient)
        if len(batch.lines) < MANY_LINES:
            return self.parser.feed(batch.lines, batch.source)
        before = len(self.parser.best)
        self.parser.feed_block(batch.raw, batch.source)
        return self.parser.best.recent(len(self.parser.best) - before)

    def place(self, files: Sequence[str]) -> None:
        """All files that are followed: who wrote them, by their names."""
        self.parser.place(files)
        self.diagnoser.place(files)

    def feed_block(self, block: bytes, source: str, first_line: int) -> None:
        """Raw lines of the past."""
        self.diagnoser.feed_block(block, source, first_line)
        self.parser.feed_block(block, source)
