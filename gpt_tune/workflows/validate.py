"""Owns `validate`: predictions held against measured runs, overall, by kind, by group and by series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpt_tune import calibration, timing
from gpt_tune.errors import UserError
from gpt_tune.memory.types import MemoryEstimate
from gpt_tune.workflows import leave_out, leave_out_memory, runs_csv
from gpt_tune.workflows.runs_csv import Run


@dataclass(frozen=True, slots=True)
class Compared:
    """One measured figure beside its prediction."""

    measured: float
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Absolute relative error, a fraction of the measured figure."""
        return abs(self.predicted / self.measured - 1.0)

    @property
    def covered(self) -> bool:
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True)
class Checked:
    """One run with everything that could be compared. memory: by kind; main_kind is the row's own."""

    run: Run
    group: str
    time: Compared | None
    fitted_rows: int
    memory: dict[str, Compared]
    oom_probability: float | None

    @property
    def main_memory(self) -> Compared | None:
        return self.memory.get(self.run.memory_kind) if self.run.memory_kind else None


@dataclass(frozen=True, slots=True)
class Report:
    """What `validate` found."""

    rows: int
    checked: tuple[Checked, ...]
    skipped: tuple[tuple[str, str], ...]
    ignored_columns: tuple[str, ...]
    fitted_rows: int


def validate(path: Path, fit: Path | None = None) -> Report:
    """Predict every run of a CSV. With `fit`, by constants fitted to that file's runs of other models."""
    runs = runs_csv.read(path)
    known = runs_csv.read(fit).runs if fit is not None else None
    if known is not None and not any(r.step_seconds or r.memory_gib for r in known):
        raise UserError(f"{fit} has no run with a step time or memory.", "Give a file of measured runs.")
    checked: list[Checked] = []
    for group, targets in _by(leave_out.group_of, runs.runs).items():
        mine = [r for r in known if leave_out.group_of(r) == group] if known is not None else None
        checked += _check_group(group, targets, mine)
    order = {id(run): i for i, run in enumerate(runs.runs)}
    checked.sort(key=lambda c: order[id(c.run)])
    ignored = runs.ignored_columns
    return Report(
        rows=len(runs.runs) + len(runs.skipped),
        checked=tuple(checked),
        skipped=runs.skipped,
        ignored_columns=ignored,
        fitted_rows=0 if known is None else len({r.id for r in known if r.step_seconds or r.memory_gib}),
    )


def _by(key: Callable[[Run], str], runs: Iterable[Run]) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def _check_group(group: str, targets: Sequence[Run], known: Sequence[Run] | None) -> list[Checked]:
    times = _times(group, [run for run in targets if run.step_seconds], known)
    estimates = leave_out_memory.estimates(targets, known, group)
    return [
        Checked(
            run=run,
            group=group,
            time=times[id(run)][0] if id(run) in times else None,
            fitted_rows=times[id(run)][1] if id(run) in times else 0,
            memory=_memory(run, one),
            oom_probability=one.oom_probability,
        )
        for run, one in zip(targets, estimates)
    ]


def _times(
    group: str, timed: Sequence[Run], known: Sequence[Run] | None
) -> Mapping[int, tuple[Compared, int]]:
    """Step time of each run beside its prediction, and on how many runs the constants rest (0: shipped)."""
    if known is not None and any(run.step_seconds for run in known):
        blind = leave_out.predict_held_out(timed, known, group)
        return {
            id(run): (_compared(run, h.seconds, float(np.exp(h.half_width))), h.fitted_rows)
            for run, h in zip(timed, blind)
        }
    found = {}
    for run in timed:
        constants = calibration.load(run.node, group)
        step = timing.estimate(run.model, run.node, run.trainer, run.layout, run.seq_length, constants)
        found[id(run)] = (_compared(run, step.seconds, step.high / step.seconds), 0)
    return found


def _compared(run: Run, seconds: float, factor: float) -> Compared:
    return Compared(run.step_seconds or 0.0, seconds, seconds / factor, seconds * factor)


def _memory(run: Run, estimate: MemoryEstimate) -> dict[str, Compared]:
    """Every memory figure of the row beside the prediction of its kind; the interval has device's relative width."""
    predicted = {
        "allocated": estimate.allocated_gib,
        "reserved": estimate.reserved_gib,
        "device": estimate.device_gib,
        "unknown": estimate.device_gib,
    }
    stated = {"allocated": run.allocated_gib, "reserved": run.reserved_gib}
    if run.memory_gib is not None:
        stated[run.memory_kind] = run.memory_gib
    down, up = estimate.low_gib / estimate.device_gib, estimate.high_gib / estimate.device_gib
    return {
        kind: Compared(figure, predicted[kind], predicted[kind] * down, predicted[kind] * up)
        for kind, figure in stated.items()
        if figure and kind in predicted
    }
