"""Owns the two ways to ask for memory: one layout in full, or many layouts as columns. Both run the same arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt_tune.calibration.constants import Calibration
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.memory.columns import Columns, Floats, Ints, build
from gpt_tune.memory.outside import outside_bytes
from gpt_tune.memory.phases import Moment, Peaks, peaks
from gpt_tune.memory.reserved import reserved_bytes
from gpt_tune.memory.setup import Setup, make
from gpt_tune.memory.types import PEAK_PHASES, MemoryBatch, MemoryEstimate, StageMemory
from gpt_tune.memory.uncertainty import interval, oom_probability
from gpt_tune.models.shape import ModelShape
from gpt_tune.units import GIB, KIB

# Layouts worked on at once: small enough for the arrays to stay in cache.
CHUNK = 8192
NOT_MODELLED = (
    "host memory and offload",
    "uneven routing of experts",
    "checkpoint saving and evaluation batches",
)


@dataclass(frozen=True, slots=True)
class _Figures:
    """Bytes of one stage of each layout; phase indexes PEAK_PHASES."""

    peaks: Peaks
    allocated: Floats
    reserved: Floats
    device: Floats
    phase: NDArray[np.int64]


def estimate(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    layout: Layout,
    seq_length: int,
    calibration: Calibration | None = None,
) -> MemoryEstimate:
    """Memory of one layout: every pipeline stage, every term, and the worst stage's figures on top."""
    setup = make(model, trainer, seq_length, layout.fusions, _hopper(node))
    n_stages = layout.pipeline_parallel
    batch = LayoutBatch.of([layout]).take(np.zeros(n_stages, dtype=np.intp))
    columns = build(setup, batch, np.arange(n_stages, dtype=np.int64))
    figures = _figures(setup, columns, calibration)
    worst = int(np.argmax(figures.device))
    limit = limit_gib(node)
    device = figures.device[worst : worst + 1] / GIB
    low, high = interval(device, calibration)
    probability = None if limit is None else float(oom_probability(device, limit, calibration)[0])
    return MemoryEstimate(
        allocated_gib=float(figures.allocated[worst] / GIB),
        reserved_gib=float(figures.reserved[worst] / GIB),
        device_gib=float(device[0]),
        low_gib=float(low[0]),
        high_gib=float(high[0]),
        limit_gib=limit,
        oom_probability=probability,
        peak_phase=PEAK_PHASES[int(figures.phase[worst])],
        stages=tuple(_stage_memory(figures, i) for i in range(n_stages)),
        not_modelled=NOT_MODELLED,
    )


def estimate_batch(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    batch: LayoutBatch,
    seq_length: int,
    calibration: Calibration | None = None,
) -> MemoryBatch:
    """The top-level figures of `estimate` for every layout of the batch."""
    setup = make(model, trainer, seq_length, batch.fusions, _hopper(node))
    n = len(batch)
    out = {name: np.zeros(n) for name in ("allocated", "reserved", "device")}
    phase, worst = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for start in range(0, n, CHUNK):
        rows = slice(start, min(start + CHUNK, n))
        part = batch.take(np.arange(rows.start, rows.stop, dtype=np.intp)) if n > CHUNK else batch
        for stage in _candidate_stages(setup, part):
            figures = _figures(setup, build(setup, part, stage), calibration)
            better = figures.device > out["device"][rows]
            for name in out:
                out[name][rows] = np.where(better, getattr(figures, name), out[name][rows])
            phase[rows] = np.where(better, figures.phase, phase[rows])
            worst[rows] = np.where(better, stage, worst[rows])
    device = out["device"] / GIB
    low, high = interval(device, calibration)
    limit = limit_gib(node)
    return MemoryBatch(
        allocated_gib=out["allocated"] / GIB,
        reserved_gib=out["reserved"] / GIB,
        device_gib=device,
        low_gib=low,
        high_gib=high,
        oom_probability=None if limit is None else oom_probability(device, limit, calibration),
        peak_phase=phase,
        worst_stage=worst,
        limit_gib=limit,
    )


def limit_gib(node: Node) -> float | None:
    """Device memory of a GPU as nvidia-smi shows it, GiB; None when unknown."""
    mib = node.gpu.memory_mib_driver
    return None if mib is None else mib / KIB


def _hopper(node: Node) -> bool:
    capability = node.gpu.compute_capability
    return capability is None or capability >= (9, 0)


def _candidate_stages(setup: Setup, batch: LayoutBatch) -> list[Ints]:
    """Stages one of which is the worst: the first, second, last, and the first where experts begin.

    Between these neither the layers nor the micro batches in flight grow with the stage.
    """
    p = batch.pipeline_parallel
    stages = [np.zeros_like(p), np.minimum(1, p - 1), p - 1]
    dense = setup.model.dense_layers
    if setup.model.moe and dense:
        per_stage = np.maximum(setup.model.layers // p, 1)
        full = np.minimum(dense // per_stage, p - 1)
        stages[2:2] = [full, np.minimum(full + 1, p - 1)]
    return stages


def _figures(setup: Setup, c: Columns, calibration: Calibration | None) -> _Figures:
    top = peaks(setup, c)
    resident = top.states.parameters + top.states.flat_gradients + top.states.optimizer
    training = np.max([m.total for m in top.forward_backward], axis=0)
    by_phase = np.stack(
        [
            resident + training,
            resident + top.reduction.total,
            resident + top.optimizer.total,
            top.initialisation,
        ]
    )
    phase = np.argmax(by_phase, axis=0)
    allocated = np.max(by_phase, axis=0)
    reserved = reserved_bytes(setup, top, allocated, resident + training, calibration)
    return _Figures(top, allocated, reserved, reserved + outside_bytes(setup, c, calibration), phase)


def _stage_memory(figures: _Figures, i: int) -> StageMemory:
    states, phase = figures.peaks.states, int(figures.phase[i])
    allocated = float(figures.allocated[i])
    parameters, flat, optimizer = (
        float(x[i]) for x in (states.parameters, states.flat_gradients, states.optimizer)
    )
    if PEAK_PHASES[phase] == "initialisation":
        moment = [0.0] * 5
        flat, optimizer = 0.0, allocated - parameters
    else:
        m = _moment(figures, phase, i)
        moment = [float(x[i]) for x in (m.gradients, m.activations, m.logits, m.buffers, m.transient)]
    gradients, activations, logits, buffers, transient = (x / GIB for x in moment)
    return StageMemory(
        stage=i,
        parameters=parameters / GIB,
        gradients=flat / GIB + gradients,
        optimizer=optimizer / GIB,
        activations=activations,
        logits=logits,
        buffers=buffers,
        transient=transient,
        reserved_gap=float(figures.reserved[i] - figures.allocated[i]) / GIB,
        context=float(figures.device[i] - figures.reserved[i]) / GIB,
        total=float(figures.device[i]) / GIB,
    )


def _moment(figures: _Figures, phase: int, i: int) -> Moment:
    """The highest moment of a phase at row i."""
    if phase == 1:
        return figures.peaks.reduction
    if phase == 2:
        return figures.peaks.optimizer
    return max(figures.peaks.forward_backward, key=lambda m: float(m.total[i]))
