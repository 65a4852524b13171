"""Owns measuring the predictors against published and own runs: each figure with rows and a bootstrap interval.

    python -m benchmarks.accuracy [--truth FOLDER] [--time-only]

Step times are blind: constants come from runs of other models of the same cluster, or of the same GPU type and
trainer. Skips, with exit code 0, when the measured runs are not there.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import accuracy_memory
from benchmarks.fit_clusters import TRUTH, timed_groups
from gpt_tune.workflows import leave_out
from gpt_tune.workflows.leave_out import Held
from gpt_tune.workflows.runs_csv import Run

Floats = NDArray[np.float64]
RESAMPLES = 2000
# The source prints for this layout the same seconds at 1,568 as at 2,048 sequences: a slip, no measurement.
MISPRINTED = {"tr11-h14336-021"}


@dataclass(frozen=True, slots=True)
class Pair:
    """A timed run and its blind prediction."""

    run: Run
    group: str
    held: Held

    @property
    def measured(self) -> float:
        return self.run.step_seconds or float("nan")

    @property
    def error(self) -> float:
        return abs(self.held.seconds / self.measured - 1.0)

    @property
    def covered(self) -> bool:
        return abs(math.log(self.held.seconds / self.measured)) <= self.held.half_width


@dataclass(frozen=True, slots=True)
class Goal:
    """A line of the table: which pairs, and what their mean error should be."""

    words: str
    chosen: Callable[[Pair], bool]
    goal: float | None


HEADER = (
    f"{'step time, blind':<58} {'rows':>5} {'mean':>7} {'95 % interval':>16} "
    f"{'median':>7} {'worst':>7} {'in 90 %':>8} {'goal':>6}"
)
NVIDIA = ("dgxc", "nemo", "megatron-bridge", "simumax")
GOALS = (
    Goal("vtrain-multi, leave one model out", lambda p: p.group == "vtrain-multi", 0.07),
    Goal(
        "vtrain-multi within a node (TP <= 8)",
        lambda p: p.group == "vtrain-multi" and p.run.layout.tensor_parallel <= 8,
        None,
    ),
    Goal("vtrain-single h1024, leave one depth out", lambda p: p.group == "vtrain-single", 0.08),
    Goal("tr11, leave one hidden size out", lambda p: p.run.series.startswith("tr11"), 0.12),
    Goal("BLOOM restarts, same calibration", lambda p: p.run.series.startswith("bloom"), None),
    Goal(
        "our H200 runs, busy, leave one shape out",
        lambda p: p.run.series.startswith("h200") and not p.run.host_bound,
        0.07,
    ),
    Goal("our H200 runs, all", lambda p: p.run.series.startswith("h200"), None),
    Goal(
        "dgxc, nemo, megatron-bridge, simumax, leave one model out",
        lambda p: p.run.series.startswith(NVIDIA) and p.run.node.gpu.id in ("h100", "b200"),
        0.12,
    ),
    *(
        Goal(f"  of these {name}", lambda p, name=name: p.run.series.startswith(name) and _asked(p), 0.12)  # type: ignore[misc]
        for name in NVIDIA
    ),
    Goal("MLPerf GPT-3 175B, H100", lambda p: p.run.series.startswith("mlperf") and _asked(p), None),
    Goal("llm-foundry FSDP, A100-40", lambda p: p.run.series.startswith("llm-foundry"), None),
    Goal("all timed rows", lambda p: True, None),
)


def _asked(pair: Pair) -> bool:
    return pair.run.node.gpu.id in ("h100", "b200")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--truth", type=Path, default=TRUTH, help="folder of measured runs")
    parser.add_argument("--time-only", action="store_true", help="leave the memory figures out")
    options = parser.parse_args(arguments)
    if not (options.truth / "layouts.csv").exists():
        print(f"skipped: no measured runs in {options.truth}")
        return 0
    pairs = predict(options.truth)
    print(HEADER)
    for goal in GOALS:
        print(line(goal, [p for p in pairs if goal.chosen(p)]))
    print_regret(pairs)
    if not options.time_only:
        accuracy_memory.main(["--truth", str(options.truth)])
    return 0


def predict(truth: Path) -> list[Pair]:
    """Every timed run beside its blind prediction."""
    pairs = []
    for group, runs in timed_groups(truth).items():
        pairs += [Pair(r, group, h) for r, h in zip(runs, leave_out.predict_held_out(runs, runs, group))]
    return pairs


def line(goal: Goal, pairs: Sequence[Pair]) -> str:
    errors = np.array([p.error for p in pairs])
    if not len(errors):
        return f"{goal.words:<58} {0:>5}"
    low, high = bootstrap(errors)
    covered = np.mean([p.covered for p in pairs])
    target = "" if goal.goal is None else f"{goal.goal:.0%}"
    return (
        f"{goal.words:<58} {len(errors):>5} {np.mean(errors):>7.1%} {low:>7.1%} - {high:<6.1%} "
        f"{np.median(errors):>7.1%} {np.max(errors):>7.1%} {covered:>8.1%} {target:>6}"
    )


def bootstrap(errors: Floats) -> tuple[float, float]:
    """95 % interval of the mean, by resampling rows."""
    chosen = np.random.default_rng(0).integers(0, len(errors), (RESAMPLES, len(errors)))
    low, high = np.quantile(errors[chosen].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def print_regret(pairs: Sequence[Pair]) -> None:
    """How much slower the layout predicted fastest is than the one that was, in groups of the same task."""
    print(f"{'chosen layout above the best of its group':<58} {'groups':>6} {'mean':>7} {'worst':>7}")
    everything: list[float] = []
    for group in sorted({p.group for p in pairs}):
        found = regrets([p for p in pairs if p.group == group])
        everything += found
        if found:
            print(f"  {group:<56} {_regret_figures(found)}")
    print(f"  {'all groups (goal: mean 2 %, worst 10 %)':<56} {_regret_figures(everything)}")


def _regret_figures(found: Sequence[float]) -> str:
    return f"{len(found):>6} {np.mean(found):>7.1%} {np.max(found):>7.1%}"


def regrets(pairs: Sequence[Pair]) -> list[float]:
    """One figure a task: same model, GPUs, batch, length and precision, and at least two layouts.

    A layout measured several times counts with its median, so that luck is no regret.
    """
    tasks: dict[object, dict[object, list[Pair]]] = {}
    for p in pairs:
        if p.run.id in MISPRINTED:
            continue
        layout = p.run.layout
        task = (p.run.model, layout.gpus, layout.global_batch_size, p.run.seq_length, layout.precision)
        tasks.setdefault(task, {}).setdefault(layout, []).append(p)
    found = []
    for layouts in tasks.values():
        if len(layouts) < 2:
            continue
        seconds = [
            (same[0].held.seconds, float(np.median([p.measured for p in same]))) for same in layouts.values()
        ]
        found.append(min(seconds)[1] / min(measured for _, measured in seconds) - 1.0)
    return found


if __name__ == "__main__":
    sys.exit(main())
