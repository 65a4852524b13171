"""Owns collecting what a log complains about, line by line, and concluding from it."""

from __future__ import annotations

from collections.abc import Sequence

from gpt_tune.diagnosis.types import Diagnosis
from gpt_tune.logs.parser import LogParser


class Diagnoser:
    """Reads the lines a parser reads; `conclude` may be called at any time."""

    def feed(self, lines: Sequence[str], source: str = "", first_line: int | None = None) -> None:
        """Reads clean lines; first_line: the number of the first of them in its file."""

    def conclude(
        self, parser: LogParser | None = None, state: str | None = None, stalled: bool = False
    ) -> Diagnosis:
        """The diagnosis so far. state: the scheduler's word for the job. stalled: nothing moves any more."""
        if parser is not None and parser.best.last() is not None:
            return Diagnosis("completed" if state == "COMPLETED" else "healthy")
        return Diagnosis("unknown")
