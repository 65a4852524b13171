"""Owns the two ways to ask for memory: layouts in full, or many layouts as columns. Both run the same arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt_tune.calibration.constants import Calibration
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.batch import PRECISIONS, LayoutBatch
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.layouts.trainers import is_finetune
from gpt_tune.memory.activations import LayerBytes, layer_bytes
from gpt_tune.memory.columns import Columns, Floats, Ints, build, first_accumulating_stage
from gpt_tune.memory.constants import value
from gpt_tune.memory.finetune_layouts import estimate_layouts, figures_of
from gpt_tune.memory.outside import outside_bytes
from gpt_tune.memory.phases import Moment, Peaks, peaks
from gpt_tune.memory.reserved import reserved_bytes, surprise_bytes
from gpt_tune.memory.setup import Setup, make
from gpt_tune.memory.types import PEAK_PHASES, MemoryBatch, MemoryEstimate, StageMemory
from gpt_tune.memory.uncertainty import interval, limit_gib, oom_probability
from gpt_tune.models.shape import ModelShape
from gpt_tune.units import GIB

# Layouts worked on at once: small enough for the arrays to stay in cache.
CHUNK = 8192
_FIGURES = ("allocated", "reserved", "device", "firm", "surprise")


@dataclass(frozen=True, slots=True)
class _Figures:
    """Bytes of one stage of each layout; phase indexes PEAK_PHASES; firm is what an OOM is judged by.

    surprise: what the allocator may reserve beyond `reserved`, seen or not seen in runs that look alike.
    """

    peaks: Peaks
    allocated: Floats
    reserved: Floats
    device: Floats
    firm: Floats
    surprise: Floats
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
    return estimate_many(model, node, trainer, LayoutBatch.of([layout]), seq_length, calibration)[0]


def estimate_many(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    batch: LayoutBatch,
    seq_length: int,
    calibration: Calibration | None = None,
) -> list[MemoryEstimate]:
    """`estimate` of every layout of the batch, in one pass over all their stages."""
    if is_finetune(trainer):
        return estimate_layouts(model, node, trainer, batch, seq_length, calibration)
    setup = make(model, trainer, seq_length, batch.fusions, _hopper(node))
    stages = batch.pipeline_parallel
    rows = np.repeat(np.arange(len(batch), dtype=np.intp), stages)
    starts = np.cumsum(stages) - stages
    stage = np.arange(len(rows), dtype=np.int64) - np.repeat(starts, stages)
    columns = build(setup, batch.take(rows), stage)
    figures = _figures(setup, columns, _shared(setup, columns, calibration), calibration)
    limit = limit_gib(node)
    missing = not_modelled(setup, batch)
    return [
        _whole(figures, int(start), int(n), limit, calibration, trainer.name, missing)
        for start, n in zip(starts, stages)
    ]


def estimate_batch(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    batch: LayoutBatch,
    seq_length: int,
    calibration: Calibration | None = None,
) -> MemoryBatch:
    """The top-level figures of `estimate` for every layout of the batch."""
    if is_finetune(trainer):
        return figures_of(estimate_layouts(model, node, trainer, batch, seq_length, calibration))
    setup = make(model, trainer, seq_length, batch.fusions, _hopper(node))
    n = len(batch)
    out = {name: np.zeros(n) for name in _FIGURES}
    phase, worst = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for start in range(0, n, CHUNK):
        rows = slice(start, min(start + CHUNK, n))
        part = batch.take(np.arange(rows.start, rows.stop, dtype=np.intp)) if n > CHUNK else batch
        shared: _Shared | None = None
        for stage in _candidate_stages(setup, part):
            columns = build(setup, part, stage)
            # Layers differ between stages only where some hold experts and some do not.
            shared = shared if shared and not model.dense_layers else _shared(setup, columns, calibration)
            figures = _figures(setup, columns, shared, calibration)
            better = figures.device > out["device"][rows]
            for name in _FIGURES:
                out[name][rows] = np.where(better, getattr(figures, name), out[name][rows])
            phase[rows] = np.where(better, figures.phase, phase[rows])
            worst[rows] = np.where(better, stage, worst[rows])
    device, limit = out["device"] / GIB, limit_gib(node)
    low, high = interval(device, out["surprise"] / GIB, calibration, trainer.name)
    return MemoryBatch(
        allocated_gib=out["allocated"] / GIB,
        reserved_gib=out["reserved"] / GIB,
        device_gib=device,
        low_gib=low,
        high_gib=high,
        oom_probability=None
        if limit is None
        else oom_probability(out["firm"] / GIB, limit, calibration, trainer.name),
        peak_phase=phase,
        worst_stage=worst,
        limit_gib=limit,
    )


def not_modelled(setup: Setup, batch: LayoutBatch) -> tuple[str, ...]:
    """What the estimate leaves out, in words."""
    missing = ["evaluation and checkpoint saving", "fragmentation that grows over thousands of steps"]
    if setup.model.moe:
        missing.append("experts that get more tokens than the average")
    if setup.trainer.name not in ("megatron-deepspeed", "megatron-lm"):
        missing.append("the activations of this trainer's own model code (a fused Llama block is assumed)")
    if bool(np.any(batch.precision == PRECISIONS.index("fp8"))):
        missing.append("fp8 copies of weights and their scaling factors")
    if setup.trainer.expandable_segments:
        missing.append("the allocator with expandable segments, known from five runs only")
    return tuple(missing)


def _hopper(node: Node) -> bool:
    capability = node.gpu.compute_capability
    return capability is None or capability >= (9, 0)


def _candidate_stages(setup: Setup, batch: LayoutBatch) -> list[Ints]:
    """Stages one of which is the worst: the first, the second, the last, that where gradients begin to add up while
    micro batches are in flight, and those where experts begin.

    Between these neither the layers nor the micro batches in flight grow with the stage.
    """
    p = batch.pipeline_parallel
    stages = [np.zeros_like(p), np.minimum(1, p - 1), p - 1]
    adding = first_accumulating_stage(batch)
    if np.any((adding > 1) & (adding < p - 1)):
        stages[2:2] = [adding]
    dense = setup.model.dense_layers
    if setup.model.moe and dense:
        layers = setup.model.layers
        # Stages hold at least layers // p and at most one more.
        early = np.minimum(dense // np.maximum(-(-layers // p), 1), p - 1)
        late = np.minimum(dense // np.maximum(layers // p, 1) + 1, p - 1)
        stages[2:2] = [np.minimum(early + i, late) for i in range(int(np.max(late - early, initial=0)) + 1)]
    return stages


@dataclass(frozen=True, slots=True)
class _Shared:
    """What is the same on every stage of a layout, bytes."""

    layer: LayerBytes
    outside: Floats


def _shared(setup: Setup, c: Columns, calibration: Calibration | None) -> _Shared:
    return _Shared(layer_bytes(setup, c), outside_bytes(setup, c, calibration))


def _figures(setup: Setup, c: Columns, shared: _Shared, calibration: Calibration | None) -> _Figures:
    top = peaks(setup, c, shared.layer)
    resident = top.states.parameters + top.states.flat_gradients + top.states.optimizer
    training = top.forward_backward[0].total
    for moment in top.forward_backward[1:]:
        training = np.maximum(training, moment.total)
    training = resident + training
    by_phase = (training, resident + top.reduction.total, resident + top.optimizer.total, top.initialisation)
    allocated, phase = by_phase[0], np.zeros(len(training), dtype=np.int64)
    for i, total in enumerate(by_phase[1:], start=1):
        phase = np.where(total > allocated, i, phase)
        allocated = np.maximum(total, allocated)
    reserved = reserved_bytes(setup, c, top, allocated, training, calibration)
    firm = allocated + value(calibration, "firm_gap", setup.trainer.name) * (reserved - allocated)
    surprise = surprise_bytes(setup, top, calibration)
    return _Figures(
        top, allocated, reserved, reserved + shared.outside, firm + shared.outside, surprise, phase
    )


def _whole(
    figures: _Figures,
    start: int,
    stages: int,
    limit: float | None,
    calibration: Calibration | None,
    trainer: str,
    missing: tuple[str, ...],
) -> MemoryEstimate:
    """The estimate of one layout, whose stages are rows start .. start + stages - 1."""
    worst = start + int(np.argmax(figures.device[start : start + stages]))
    one = slice(worst, worst + 1)
    device = figures.device[one] / GIB
    low, high = interval(device, figures.surprise[one] / GIB, calibration, trainer)
    firm = figures.firm[one] / GIB
    chance = None if limit is None else float(oom_probability(firm, limit, calibration, trainer)[0])
    return MemoryEstimate(
        allocated_gib=float(figures.allocated[worst] / GIB),
        reserved_gib=float(figures.reserved[worst] / GIB),
        device_gib=float(device[0]),
        low_gib=float(low[0]),
        high_gib=float(high[0]),
        limit_gib=limit,
        oom_probability=chance,
        peak_phase=PEAK_PHASES[int(figures.phase[worst])],
        stages=tuple(_stage_memory(figures, start + i, i) for i in range(stages)),
        not_modelled=missing,
    )


def _stage_memory(figures: _Figures, row: int, stage: int) -> StageMemory:
    states, phase = figures.peaks.states, PEAK_PHASES[int(figures.phase[row])]
    allocated = float(figures.allocated[row])
    parameters, flat, optimizer = (
        float(x[row]) for x in (states.parameters, states.flat_gradients, states.optimizer)
    )
    gradients = activations = logits = buffers = transient = 0.0
    if phase == "initialisation":
        parameters = min(parameters, allocated)
        flat, optimizer = 0.0, allocated - parameters
    else:
        m = _moment(figures, phase, row)
        gradients, activations, logits, buffers, transient = (
            float(x[row]) for x in (m.gradients, m.activations, m.logits, m.buffers, m.transient)
        )
    return StageMemory(
        stage=stage,
        parameters=parameters / GIB,
        gradients=(flat + gradients) / GIB,
        optimizer=optimizer / GIB,
        activations=activations / GIB,
        logits=logits / GIB,
        buffers=buffers / GIB,
        transient=transient / GIB,
        reserved_gap=float(figures.reserved[row] - allocated) / GIB,
        context=float(figures.device[row] - figures.reserved[row]) / GIB,
        total=float(figures.device[row]) / GIB,
    )


def _moment(figures: _Figures, phase: str, row: int) -> Moment:
    """The highest moment of a phase."""
    if phase == "reduction":
        return figures.peaks.reduction
    if phase == "optimizer":
        return figures.peaks.optimizer
    return max(figures.peaks.forward_backward, key=lambda m: float(m.total[row]))
