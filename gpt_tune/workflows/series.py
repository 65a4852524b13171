"""Owns what is drawn of several runs on one pair of axes, and the marks of one: checkpoints, restarts, warnings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpt_tune.diagnosis.types import Finding
from gpt_tune.errors import UserError
from gpt_tune.logs.columns import Floats
from gpt_tune.logs.facts import RunFacts
from gpt_tune.logs.table import StepTable
from gpt_tune.logs.types import Event
from gpt_tune.workflows.watching.axes import axis_of

MAX_RUNS = 5  # more lines than that cannot be told apart in 16 colours
MAX_MARKS = 200  # of a kind; the newest are kept

MarkKind = Literal["checkpoint", "restart", "validation", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A run as a chart needs it. peak_tflops: None refuses MFU."""

    name: str
    table: StepTable
    facts: RunFacts
    peak_tflops: float | None = None


@dataclass(frozen=True, slots=True)
class NamedSeries:
    """One figure of one run; y is NaN where nothing was printed. Empty when the run has no such figure."""

    name: str
    x: Floats
    y: Floats

    @property
    def empty(self) -> bool:
        return not bool(np.isfinite(self.y).any())


@dataclass(frozen=True, slots=True)
class ChartMark:
    """Something worth a vertical line at x."""

    x: float
    kind: MarkKind
    text: str
    iteration: int


def compare(runs: Sequence[Drawn], figure: str, axis: str = "iteration") -> list[NamedSeries]:
    """One figure of up to MAX_RUNS runs. UserError for more, none, or an unknown figure or axis."""
    if not 1 <= len(runs) <= MAX_RUNS:
        raise UserError(
            f"{len(runs)} runs cannot be compared in one chart.", f"Choose 1 to {MAX_RUNS} of them."
        )
    found = []
    for run, name in zip(runs, _names(runs)):
        x, y = axis_of(run.table, run.facts, figure, axis, run.peak_tflops)
        keep = np.isfinite(x)
        found.append(NamedSeries(name, x[keep], y[keep]))
    return found


def _names(runs: Sequence[Drawn]) -> list[str]:
    """Names as given; a number behind those that stand twice."""
    names: list[str] = []
    for run in runs:
        again = sum(n == run.name or n.startswith(f"{run.name} (") for n in names)
        names.append(f"{run.name} ({again + 1})" if again else run.name)
    return names


def marks(
    run: Drawn, events: Iterable[Event], findings: Iterable[Finding] = (), axis: str = "iteration"
) -> list[ChartMark]:
    """What happened along a run, in its order; only what falls between its first and last step."""
    x, _ = axis_of(run.table, run.facts, "step_time_ms", axis)
    iterations, _ = axis_of(run.table, run.facts, "step_time_ms", "iteration")
    keep = np.isfinite(x)
    x, iterations = x[keep], iterations[keep]
    if not len(x):
        return []
    found: dict[tuple[MarkKind, int], str] = {}
    for event in events:
        if event.iteration is not None and event.kind in ("saved", "validation"):
            kind: MarkKind = "checkpoint" if event.kind == "saved" else "validation"
            found[kind, event.iteration] = f"{kind} at iteration {event.iteration}"
    segments = [s for s in run.table.segments if not s.empty]
    for segment in segments[1:]:
        came = f", resumed from {segment.resumed_from}" if segment.resumed_from is not None else ""
        found["restart", segment.first] = f"restart at iteration {segment.first}{came}"
    for finding in findings:
        if finding.iteration is not None and finding.severity != "info" and finding.dismissed is None:
            found[finding.severity, finding.iteration] = f"{finding.id}: {finding.text}"
    return _placed(found, x, iterations)


def _placed(found: dict[tuple[MarkKind, int], str], x: Floats, iterations: Floats) -> list[ChartMark]:
    placed: list[ChartMark] = []
    counts: dict[MarkKind, int] = {}
    order = np.argsort(iterations, kind="stable")
    for (kind, iteration), text in sorted(found.items(), key=lambda item: -item[0][1]):
        if not iterations[order[0]] - 1 <= iteration <= iterations[order[-1]] + 1:
            continue
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] > MAX_MARKS:
            continue
        at = min(int(np.searchsorted(iterations[order], iteration)), len(order) - 1)
        placed.append(ChartMark(float(x[order[at]]), kind, text, iteration))
    return sorted(placed, key=lambda mark: (mark.x, mark.kind))
