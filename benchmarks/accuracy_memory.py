"""Owns measuring the memory model against published and own runs: each figure with rows and a bootstrap interval.

    python -m benchmarks.accuracy_memory [--truth FOLDER]

Prints one line a figure. Nothing is fitted but, where the line says so, one additive constant (the median
residual of the rows left in). Skips, with exit code 0, when the measured runs are not there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpt_tune import memory
from gpt_tune.memory.types import MemoryEstimate
from gpt_tune.workflows.runs_csv import Run, read

Floats = NDArray[np.float64]
TRUTH = Path(__file__).resolve().parents[2] / "shared" / "truth"
RESAMPLES = 2000
# The references call this row's failure unexplained: 206B, TP4 PP12 DP8, predicted well below 80 GB.
UNEXPLAINED = {"tr11-h14336-055"}


@dataclass(frozen=True, slots=True)
class Pair:
    """A run and its estimate, made without any fitted constant."""

    run: Run
    estimate: MemoryEstimate

    @property
    def measured(self) -> float:
        return self.run.memory_gib or float("nan")

    @property
    def predicted(self) -> float:
        """The figure of the kind the row states; unknown kinds are compared with device."""
        e = self.estimate
        return {"allocated": e.allocated_gib, "reserved": e.reserved_gib}.get(
            self.run.memory_kind, e.device_gib
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--truth", type=Path, default=TRUTH, help="folder of measured runs")
    truth = parser.parse_args(arguments).truth
    if not (truth / "layouts.csv").exists():
        print(f"skipped: no measured runs in {truth}")
        return 0
    published = _pairs(truth / "layouts.csv")
    own = [p for p in _pairs(truth / "h200" / "runs.csv") if "repeat" not in p.run.notes]
    report_tr11(published)
    report_without_constant(published, own)
    report_own(own)
    report_oom(published)
    report_intervals(published, own)
    return 0


def _pairs(path: Path) -> list[Pair]:
    return [
        Pair(r, memory.estimate(r.model, r.node, r.trainer, r.layout, r.seq_length)) for r in read(path).runs
    ]


def report_tr11(pairs: list[Pair]) -> None:
    """One constant, leave one layout out; a layout is shape, parallel sizes and micro batch."""
    for precision, goal in (("bf16", 0.024), ("fp16", 0.04)):
        rows = [
            p
            for p in pairs
            if p.run.id.startswith("tr11") and p.run.layout.precision == precision and p.run.memory_gib
        ]
        errors = np.abs(leave_one_out(rows, layout_key))
        _line(f"tr11 {precision}, one constant, leave one layout out, mean", errors, np.mean, goal)
        _line(f"tr11 {precision}, no constant, mean", relative(rows), np.mean, None)


def report_without_constant(published: list[Pair], own: list[Pair]) -> None:
    known = [p for p in published if p.run.memory_gib and p.run.memory_kind != "unknown"]
    _line("published rows of known kind, no constant, median", relative(known), np.median, 0.08)
    _line("published rows of known kind, no constant, mean", relative(known), np.mean, None)
    both = known + [p for p in own if p.run.memory_gib]
    _line("published and own rows of known kind, no constant, median", relative(both), np.median, 0.08)
    allocated = [p for p in known if p.run.memory_kind == "allocated"]
    _line("simumax B200 (allocated), no constant, mean", relative(allocated), np.mean, None)
    unknown = [p for p in published if p.run.memory_gib and p.run.memory_kind == "unknown"]
    _line(
        "published rows of unknown kind against device, no constant, median",
        relative(unknown),
        np.median,
        None,
    )


def report_own(own: list[Pair]) -> None:
    """Our H200 runs; one additive constant from the other shapes, for device only."""
    allocated = [(p.run.allocated_gib, p.estimate.allocated_gib) for p in own if p.run.allocated_gib]
    _line("H200 allocated, no constant, mean", _ratio_errors(allocated), np.mean, 0.03)
    _line("H200 allocated, no constant, worst", _ratio_errors(allocated), np.max, None)
    reserved = [(p.run.reserved_gib, p.estimate.reserved_gib) for p in own if p.run.reserved_gib]
    _line("H200 reserved, no constant, mean", _ratio_errors(reserved), np.mean, None)
    device = [p for p in own if p.run.memory_gib]
    _line("H200 device, no constant, mean", relative(device), np.mean, 0.08)
    left_out = np.abs(leave_one_out(device, shape_key))
    _line("H200 device, one constant, leave one shape out, mean", left_out, np.mean, 0.08)


def report_oom(pairs: list[Pair]) -> None:
    """Calls are oom_probability > 0.5. Every row that ran fits its card, also those without a memory figure."""
    ooms = [p for p in pairs if p.run.oom and p.run.id not in UNEXPLAINED]
    caught = sum(_called(p) for p in ooms)
    print(f"{'OOM rows caught (unexplained one left out)':<72} {caught} of {len(ooms)}")
    for name, rows in (
        ("fitting rows with a memory figure", [p for p in pairs if p.run.memory_gib]),
        ("fitting rows of llm-foundry", [p for p in pairs if p.run.series.startswith("llm-foundry")]),
        ("all fitting rows", [p for p in pairs if not p.run.oom]),
    ):
        alarms = np.array([float(_called(p)) for p in rows])
        _line(f"false alarms, {name}", alarms, np.mean, 0.05)


def report_intervals(published: list[Pair], own: list[Pair]) -> None:
    known = [p for p in published if p.run.memory_gib and p.run.memory_kind != "unknown"]
    rows = known + [p for p in own if p.run.memory_gib]
    for name, part in (("published", known), ("published and own", rows)):
        inside = np.array([float(_inside(p)) for p in part])
        _line(f"90 % intervals cover, {name} rows of known kind, no constant", inside, np.mean, None)


def leave_one_out(pairs: list[Pair], key: Callable[[Run], Hashable]) -> Floats:
    """Relative errors of predictions shifted by the median residual of all rows with another key."""
    keys = [key(p.run) for p in pairs]
    residual = np.array([p.measured - p.predicted for p in pairs])
    errors = []
    for i, pair in enumerate(pairs):
        others = [j for j, k in enumerate(keys) if k != keys[i]]
        shift = float(np.median(residual[others])) if others else 0.0
        errors.append((pair.predicted + shift) / pair.measured - 1.0)
    return np.array(errors)


def layout_key(run: Run) -> Hashable:
    x = run.layout
    return (
        run.model.hidden,
        run.model.layers,
        run.model.heads,
        x.tensor_parallel,
        x.pipeline_parallel,
        x.data_parallel,
        x.micro_batch_size,
        x.zero_stage,
    )


def shape_key(run: Run) -> Hashable:
    return (run.model.hidden, run.model.layers, run.model.ffn)


def relative(pairs: list[Pair]) -> Floats:
    return np.array([abs(p.predicted / p.measured - 1.0) for p in pairs])


def _ratio_errors(pairs: list[tuple[float, float]]) -> Floats:
    return np.array([abs(predicted / measured - 1.0) for measured, predicted in pairs])


def _called(pair: Pair) -> bool:
    chance = pair.estimate.oom_probability
    return chance is not None and chance > 0.5


def _inside(pair: Pair) -> bool:
    """Whether the figure lies in the interval, which has the same relative width for every kind."""
    e = pair.estimate
    scale = pair.predicted / e.device_gib
    return e.low_gib * scale <= pair.measured <= e.high_gib * scale


def _line(
    name: str, values: Floats, statistic: Callable[[Floats], np.floating | float], goal: float | None
) -> None:
    if len(values) == 0:
        print(f"{name:<72} no rows")
        return
    random = np.random.default_rng(0)
    picks = random.integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile([statistic(values[p]) for p in picks], [0.05, 0.95])
    verdict = (
        "" if goal is None else f"   goal {goal:.1%}: {'met' if statistic(values) <= goal else 'MISSED'}"
    )
    print(
        f"{name:<72} {float(statistic(values)):6.1%} ({low:.1%} to {high:.1%}, {len(values)} rows){verdict}"
    )


if __name__ == "__main__":
    sys.exit(main())
