"""Owns making the shipped calibrations: fits each cluster's constants to measured runs and writes profiles/clusters/.

    python -m benchmarks.fit_clusters [--truth FOLDER] [--date YYYY-MM-DD]

Stated errors and interval widths are those of blind predictions (leave one model out; memory: one layout or shape),
not of the fit itself. Skips, with exit code 0, when the measured runs are not there.
"""

from __future__ import annotations

import argparse
import datetime
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpt_tune import toml
from gpt_tune.memory.uncertainty import SMALLEST_ERROR
from gpt_tune.resources import data_dir
from gpt_tune.timing.constants import value
from gpt_tune.workflows import leave_out, leave_out_memory
from gpt_tune.workflows.runs_csv import Run, read

TRUTH = Path(__file__).resolve().parents[2] / "shared" / "truth"
# What one GPU type has in common whatever the trainer: these also stand without a trainer's name.
_OF_THE_GPU = ("gemm_fraction", "memory_fraction", "intra_fraction")
# A constant that the fit left within this (natural-log units) of its default is not stated.
_WORTH_STATING = 0.02


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """One file: which groups of runs it is made from (the first one speaks for the GPU), and where it applies."""

    name: str
    groups: tuple[str, ...]
    source: str
    gpu: str | None = None
    nodes: tuple[str, ...] = ()


FILES = (
    ClusterFile(
        "jean-zay",
        ("jean-zay",),
        "bigscience tr11 chronicles (176B search) and BLOOM's logs: A100-80, 4 x 100 Gb/s Omni-Path a node",
        nodes=("jean-zay-a100",),
    ),
    ClusterFile(
        "vtrain-single", ("vtrain-single",), "vTrain data/ground_truth_single.csv: one node of 8 A100"
    ),
    ClusterFile("vtrain-multi", ("vtrain-multi",), "vTrain data/ground_truth_multi.csv: up to 512 A100"),
    ClusterFile(
        "a100-80",
        ("a100-80/megatron-lm", "a100-80/megatron-lm@internevo", "a100-80/megatron-deepspeed"),
        "FlagPerf, Korthikanti et al. Table 5, InternEvo, MT-NLG 530B",
        gpu="a100-80",
    ),
    ClusterFile(
        "a100-40",
        ("a100-40/fsdp@llm-foundry", "a100-40/megatron-lm"),
        "llm-foundry's A100-40 tables, Megatron-LM README of September 2020",
        gpu="a100-40",
    ),
    ClusterFile(
        "h100",
        ("h100/megatron-lm@nemo", "h100/megatron-lm", "h100/fsdp@automodel", "h100/fsdp@maxtext"),
        "NVIDIA's published NeMo, DGX Cloud, Megatron-Bridge and MLPerf runs; FlagPerf; AutoModel; MaxText",
        gpu="h100",
    ),
    ClusterFile(
        "h200", ("h200/megatron-deepspeed",), "our runs on one and two H200 (DeepSpeed 0.19.8)", gpu="h200"
    ),
    ClusterFile(
        "b200",
        ("b200/megatron-lm", "b200/megatron-lm@nemo"),
        "SimuMax v1.2 B200 runs, AWS PCS p6-b200 test; NVIDIA's Megatron-Bridge and MLPerf runs",
        gpu="b200",
    ),
    ClusterFile("gb200", ("gb200/megatron-lm@nemo",), "NVIDIA's Megatron-Bridge runs", gpu="gb200"),
    ClusterFile("gb300", ("gb300/megatron-lm@nemo",), "NVIDIA's Megatron-Bridge runs", gpu="gb300"),
    ClusterFile("v100-32", ("v100-32/megatron-lm",), "Megatron-LM README of September 2020", gpu="v100-32"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--truth", type=Path, default=TRUTH, help="folder of measured runs")
    parser.add_argument("--date", default=datetime.datetime.now(datetime.timezone.utc).date().isoformat())
    options = parser.parse_args(arguments)
    if not (options.truth / "layouts.csv").exists():
        print(f"skipped: no measured runs in {options.truth}")
        return 0
    runs = all_runs(options.truth)
    groups, stated = _groups(r for r in runs if r.step_seconds), _groups(r for r in runs if r.memory_gib)
    folder = data_dir("profiles") / "clusters"
    for file in FILES:
        path = folder / f"{file.name}.toml"
        memory = memory_data(file, stated)
        path.write_text(toml.dump(cluster_data(file, groups, options.date, memory)), encoding="utf-8")
        print(f"wrote {path.name}")
    return 0


def all_runs(truth: Path) -> list[Run]:
    """Every measured run there is."""
    return [run for name in ("layouts.csv", "h200/runs.csv") for run in read(truth / name).runs]


def timed_groups(truth: Path) -> dict[str, list[Run]]:
    """All runs with a step time, by what one calibration covers."""
    return _groups(run for run in all_runs(truth) if run.step_seconds)


def _groups(runs: Iterable[Run]) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(leave_out.group_of(run), []).append(run)
    return groups


def memory_data(file: ClusterFile, groups: Mapping[str, Sequence[Run]]) -> dict[str, Any] | None:
    """The memory table: the additive constant and the error of blind predictions, from device figures alone.

    A file for one GPU type gets no constant: how much memory its clusters' software takes differs.
    """
    constants: dict[str, Any] = {}
    errors: list[float] = []
    for group in file.groups:
        runs = [r for r in groups.get(group, ()) if r.memory_kind == "device" and "repeat" not in r.notes]
        if len(runs) < leave_out_memory.FEWEST_FIGURES:
            continue
        fitted = leave_out_memory.fit_group(runs, with_constant=file.gpu is None)
        errors += fitted.relative_errors
        mine = {"error": _short(max(fitted.spread, SMALLEST_ERROR))}
        if file.gpu is None:
            constants.update({"cluster_gib": _short(fitted.cluster_gib), **mine})
        else:
            constants[group.partition("/")[2]] = mine
    if not errors:
        return None
    return {"error": _short(float(np.mean(errors))), "rows": len(errors), "constants": constants}


def cluster_data(
    file: ClusterFile, groups: Mapping[str, Sequence[Run]], date: str, memory: Any
) -> dict[str, Any]:
    """The file's content."""
    one_trainer = file.gpu is None
    constants: dict[str, Any] = {}
    errors: list[float] = []
    for group in file.groups:
        runs = groups[group]
        fitted = leave_out.fit_group(runs, group)
        blind = leave_out.predict_held_out(runs, runs, group)
        errors += [abs(h.seconds / (r.step_seconds or 1.0) - 1.0) for r, h in zip(runs, blind)]
        scaled = np.array([leave_out.scaled_error(r, h) for r, h in zip(runs, blind)])
        mine = {name: _short(x) for name, x in sorted(fitted.constants.items()) if _moved(name, x, runs[0])}
        mine["width_90"] = _short(leave_out.width_90(scaled))
        if one_trainer:
            constants.update(mine)
        else:
            constants[group.partition("/")[2]] = mine
            if group == file.groups[0]:
                constants = {**{n: mine[n] for n in _OF_THE_GPU if n in mine}, **constants}
    data: dict[str, Any] = {"name": file.name, "source": file.source, "fitted_at": date}
    if file.gpu:
        data["gpu"] = file.gpu
    if file.nodes:
        data["nodes"] = list(file.nodes)
    if memory:
        data["memory"] = memory
    data["timing"] = {"error": _short(float(np.mean(errors))), "rows": len(errors), "constants": constants}
    return data


def _moved(name: str, x: float, run: Run) -> bool:
    """Whether the fit says more than the default does."""
    if name in _OF_THE_GPU or name in leave_out.facts_of(leave_out.group_of(run)):
        return True
    return abs(math.log(x / value(name, run.node.gpu, run.trainer, None))) > _WORTH_STATING


def _short(x: float) -> float:
    """Four digits: more would claim a precision the runs do not have."""
    return float(f"{x:.4g}")


if __name__ == "__main__":
    sys.exit(main())
