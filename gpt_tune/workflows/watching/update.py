"""Owns what one look at a run brings: new lines and steps, and the whole state after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpt_tune.diagnosis.types import Diagnosis, Finding
from gpt_tune.logs.follow import Batch
from gpt_tune.logs.lines import alarms
from gpt_tune.logs.summary import Summary
from gpt_tune.logs.types import RankMemory, Step
from gpt_tune.schedulers.base import JobStatus
from gpt_tune.workflows.watching.hang import Hang
from gpt_tune.workflows.watching.pace import Pace


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line for a log pane, safe to show. transient: a progress-bar state that the next one overwrote.

    number: of the line in its file, where that is known. apart: lines before it were left out.
    """

    text: str
    source: str
    transient: bool = False
    number: int | None = None
    apart: bool = False


@dataclass(frozen=True, slots=True)
class WatchUpdate:
    """What one poll brought, and the whole state after it.

    lines: new ones, newest last: at most MAX_NEW_LINES, and before them every warning and error among the others;
    skipped_lines counts those left out.
    steps: added or completed by this poll. new_findings: not reported before. history: share of the log's
    past that has been read (1.0: all of it). waiting: files that do not exist yet. ended: the job is over and
    everything has been read.
    """

    lines: tuple[LogLine, ...] = ()
    skipped_lines: int = 0
    steps: tuple[Step, ...] = ()
    state: str = "UNKNOWN"
    state_changed: bool = False
    status: JobStatus | None = None
    summary: Summary = field(default_factory=Summary)
    pace: Pace = field(default_factory=Pace)
    diagnosis: Diagnosis = field(default_factory=lambda: Diagnosis("unknown"))
    new_findings: tuple[Finding, ...] = ()
    hang: Hang | None = None
    last_step: Step | None = None
    memory: tuple[RankMemory, ...] = ()
    history: float = 1.0
    behind: int = 0
    waiting: tuple[str, ...] = ()
    reset: bool = False
    ended: bool = False


def pane_lines(batch: Batch, first: int | None = None) -> list[LogLine]:
    """Lines of one file for a log pane. first: the number of the first of them, where it is known."""
    lines: list[LogLine] = []
    number = first
    for index, text in enumerate(batch.lines):
        transient = index in batch.transient
        lines.append(LogLine(text, batch.source, transient, number))
        if number is not None and not transient:
            number += 1
    return lines


def newest(lines: Sequence[LogLine], most: int, most_alarms: int) -> list[LogLine]:
    """The newest lines, and the warnings and errors among the others: those must not be lost in a flood.

    Of endless ones the first and the last.
    """
    if len(lines) <= most:
        return list(lines)
    older, shown = lines[:-most], lines[-most:]
    found = [replace(older[i], apart=True) for i in alarms([line.text for line in older])]
    if len(found) > most_alarms:
        found = found[: most_alarms // 2] + found[len(found) - (most_alarms - most_alarms // 2) :]
    return [*found, *shown]
