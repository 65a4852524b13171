"""Owns memory predictions for measured runs, with the cluster's constant fitted to other layouts only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpt_tune import calibration, memory
from gpt_tune.calibration import Calibration
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Fusions, Trainer
from gpt_tune.memory.fit import error_of, fit_cluster
from gpt_tune.memory.types import MemoryEstimate
from gpt_tune.memory.uncertainty import ERROR, surprise_of
from gpt_tune.models.shape import ModelShape
from gpt_tune.workflows.runs_csv import Run

# The constant is a median: fewer figures than this say nothing about a cluster.
FEWEST_FIGURES = 3
_CONSTANT = "cluster_gib"

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """Device memory of a run beside its prediction, GiB; surprise: what the allocator may reserve on top."""

    measured: float
    predicted: float
    surprise: float


def estimates(targets: Sequence[Run], known: Sequence[Run] | None, group: str) -> list[MemoryEstimate]:
    """Memory of each run of a group: with the shipped constants, or (`known` given) with the additive constant
    fitted to the device memory of known runs of the same precision and other layouts."""
    if known is None:
        return _predict(targets, lambda node: calibration.load(node, group))
    figures = [run for run in known if run.memory_gib and run.memory_kind == "device"]
    bare = _predict(figures, lambda node: _without_constant(calibration.load(node, group)))
    offered = [
        (r.layout.precision, layout_key(r), Figure(r.memory_gib or 0.0, e.device_gib, surprise_of(e)))
        for r, e in zip(figures, bare)
    ]
    found: dict[int, MemoryEstimate] = {}
    for run in targets:
        others = [
            figure
            for precision, key, figure in offered
            if precision == run.layout.precision and key != layout_key(run)
        ]
        found[id(run)] = _one(run, others, group)
    return [found[id(run)] for run in targets]


@dataclass(frozen=True, slots=True)
class Blind:
    """What memory runs of one cluster teach. relative_errors: of each run, predicted from the other layouts."""

    cluster_gib: float
    spread: float
    relative_errors: tuple[float, ...]


def fit_group(runs: Sequence[Run], with_constant: bool) -> Blind:
    """The additive constant of a cluster and the spread of its runs, each judged by the runs of other layouts."""
    bare = _predict(runs, lambda node: Calibration())
    found = [Figure(r.memory_gib or 0.0, predicted_of(r, e), surprise_of(e)) for r, e in zip(runs, bare)]
    keys = [layout_key(run) for run in runs]
    residuals = np.array([x.measured - x.predicted for x in found])
    shifts = np.zeros(len(found))
    if with_constant:
        for i, key in enumerate(keys):
            others = [j for j, k in enumerate(keys) if k != key]
            shifts[i] = np.median(residuals[others]) if others else 0.0
    measured = np.array([x.measured for x in found])
    predicted = np.array([x.predicted for x in found]) + shifts
    surprise = np.array([x.surprise for x in found])
    # Nine in ten of the shapes and nine in ten of the runs: neither many runs of one shape nor one run each of
    # several may make the interval too narrow for the others.
    spread = max(error_of(measured, predicted, surprise, weights) for weights in (_even(runs), None))
    return Blind(
        cluster_gib=float(np.median(residuals)) if with_constant else 0.0,
        spread=spread,
        relative_errors=tuple(np.abs(predicted / measured - 1.0).tolist()),
    )


def _even(runs: Sequence[Run]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Weights with which every shape counts the same, however many runs it has."""
    shapes = [(run.model.hidden, run.model.layers, run.model.ffn) for run in runs]
    return np.array([1.0 / shapes.count(shape) for shape in shapes])


def predicted_of(run: Run, estimate: MemoryEstimate) -> float:
    """The figure of the kind the run states; unknown kinds are compared with device."""
    figures = {"allocated": estimate.allocated_gib, "reserved": estimate.reserved_gib}
    return figures.get(run.memory_kind, estimate.device_gib)


def layout_key(run: Run) -> Key:
    """What makes two runs the same layout: shape, parallel sizes, micro batch and what changes memory."""
    layout = run.layout
    return (
        replace(run.model, heads=1, kv_heads=1, head_size=1),
        run.seq_length,
        layout.tensor_parallel,
        layout.pipeline_parallel,
        layout.context_parallel,
        layout.data_parallel,
        layout.micro_batch_size,
        layout.zero_stage,
        layout.recompute,
        layout.sequence_parallel,
        layout.flash_attention,
    )


def _one(run: Run, others: Sequence[Figure], group: str) -> MemoryEstimate:
    constants = calibration.load(run.node, group)
    if len(others) >= FEWEST_FIGURES:
        fitted = fit_cluster(
            [x.measured for x in others], [x.predicted for x in others], [x.surprise for x in others]
        )
        constants = replace(
            constants,
            memory={
                **_without_constant(constants).memory,
                _CONSTANT: fitted.cluster_gib,
                ERROR: fitted.error,
            },
            memory_error=fitted.error,
            memory_rows=fitted.rows,
        )
    return memory.estimate(run.model, run.node, run.trainer, run.layout, run.seq_length, constants)


def _without_constant(constants: Calibration) -> Calibration:
    kept = {k: v for k, v in constants.memory.items() if k.rpartition(".")[2] not in (_CONSTANT, ERROR)}
    return replace(constants, memory=kept)


def _predict(runs: Sequence[Run], constants_of: Callable[[Node], Calibration]) -> list[MemoryEstimate]:
    """Memory of each run; runs that share a model and trainer go as one batch."""
    batches: dict[tuple[ModelShape, Node, Trainer, int, Fusions], list[Run]] = {}
    for run in runs:
        key = (run.model, run.node, run.trainer, run.seq_length, run.layout.fusions)
        batches.setdefault(key, []).append(run)
    found: dict[int, MemoryEstimate] = {}
    for (model, node, trainer, seq_length, _), same in batches.items():
        batch = LayoutBatch.of([run.layout for run in same])
        many = memory.estimate_many(model, node, trainer, batch, seq_length, constants_of(node))
        found.update({id(run): one for run, one in zip(same, many)})
    return [found[id(run)] for run in runs]
