"""Owns the pipeline: layers into stages, the pace of the slowest stage, fill and drain, and the sends between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt_tune.layouts import stages as stage_layers
from gpt_tune.layouts.batch import GRANULARITIES, METHODS
from gpt_tune.timing import network
from gpt_tune.timing.distinct import distinct
from gpt_tune.timing.pieces import KINDS, Cost, Pieces
from gpt_tune.timing.task import Bools, Floats, Ints, Task

_FULL = GRANULARITIES.index("full")
_BLOCK = METHODS.index("block")


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage of each layout is made of; `dense` of its `layers` have no experts."""

    layers: Ints
    dense: Ints
    embedding: Bools
    head: Bools


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Seconds of a step by kind of work, all micro-batches on the slowest stage; bubble and sends beside it."""

    work: dict[str, Floats]
    bubble: Floats
    sends: Floats


def pipeline(task: Task, pieces: Pieces) -> Pipeline:
    """One-forward-one-backward: the slowest stage is busy all the time, but for filling and draining the rest.

    Interleaved chunks divide the fill and multiply the sends.
    """
    batch = task.batch
    p, m, v = batch.pipeline_parallel, batch.gradient_accumulation_steps, batch.virtual_pipeline
    again = _recomputed(task)
    first, middle, last = _stages(task)
    columns = _Columns(pieces)
    times = [columns.seconds(stage, again, "total") for stage in (first, middle, last)]
    time_first = times[0]
    time_middle = np.where(p > 2, times[1], 0.0)
    time_last = np.where(p == 1, 0.0, times[2])
    slowest = np.maximum(np.maximum(time_first, time_middle), time_last)
    pace = _choose(time_first >= slowest, first, _choose(time_last >= slowest, last, middle))
    between = np.maximum(task.model.layers - first.layers - last.layers, 0) / np.maximum(middle.layers, 1)
    everything = time_first + time_last + time_middle * between
    steady = m.astype(np.float64)
    return Pipeline(
        work={kind: steady * columns.seconds(pace, again, kind) for kind in KINDS},
        bubble=np.maximum(everything - slowest, 0.0) / v,
        sends=np.where(p == 1, 0.0, _sends(task, pace.embedding | pace.head) * (m + p - 1) * v),
    )


def _stages(task: Task) -> tuple[Stage, Stage, Stage]:
    """The first, the fullest middle and the last stage of each layout; with one stage the first is the whole."""
    model = task.model
    (p,), index = distinct([task.batch.pipeline_parallel])
    how = stage_layers.split_of(task.trainer)
    sizes = [stage_layers.layers_of_stage(model.layers, p, i, how)[index] for i in (0, 1, p - 1)]
    single = (p == 1)[index]
    yes, no = np.ones_like(single), np.zeros_like(single)
    # Leading dense layers of a mixture of experts stand on the first stage.
    dense = [np.minimum(model.dense_layers, sizes[0]), 0 * sizes[1], 0 * sizes[2]] if model.moe else sizes
    return (
        Stage(sizes[0], dense[0], yes, single),
        Stage(sizes[1], dense[1], no, no),
        Stage(sizes[2], dense[2], no, yes),
    )


def _choose(which: Bools, one: Stage, other: Stage) -> Stage:
    return Stage(
        layers=np.where(which, one.layers, other.layers),
        dense=np.where(which, one.dense, other.dense),
        embedding=np.where(which, one.embedding, other.embedding),
        head=np.where(which, one.head, other.head),
    )


def _recomputed(task: Task) -> Ints:
    """At most how many layers of a stage run forward twice."""
    batch = task.batch
    block = np.where(batch.recompute_method == _BLOCK, batch.recompute_layers, task.model.layers)
    return np.where(batch.recompute_granularity == _FULL, block, 0)


class _Columns:
    """Costs of the pieces spread out to a row per layout, each once."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._known: dict[tuple[str, str], Floats | float] = {}

    def of(self, piece: str, kind: str) -> Floats | float:
        key = (piece, kind)
        if key not in self._known:
            cost: Cost | None = getattr(self._pieces, piece)
            column = getattr(cost, kind) if cost is not None else np.zeros(0)
            self._known[key] = column[self._pieces.index] if column.any() else 0.0
        return self._known[key]

    def seconds(self, stage: Stage, again: Ints, kind: str) -> Floats:
        """One micro-batch on a stage, of one kind or in total."""
        time = stage.dense * self.of("dense", kind)
        if self._pieces.sparse is not None:
            time = time + (stage.layers - stage.dense) * self.of("sparse", kind)
        time = time + np.minimum(stage.layers, again) * self.of("again", kind)
        time = time + stage.embedding * self.of("embedding", kind)
        result: Floats = time + stage.head * self.of("head", kind)
        return result


def _sends(task: Task, at_end: Bools) -> Floats:
    """Seconds of the activation and gradient transfers of one micro-batch between two stages.

    Tensor-parallel ranks send a slice each (DeepSpeed's partitioned pipe, Megatron's scatter and gather).
    at_end: the first or last stage sets the pace, and has one neighbour only, which a small stage has in its node.
    """
    batch = task.batch
    stride = batch.tensor_parallel * batch.context_parallel * batch.data_parallel
    reach = np.where(at_end, np.minimum(batch.pipeline_parallel, 2), batch.pipeline_parallel)
    crosses: NDArray[np.bool_] = stride * reach > task.domain
    tokens = task.seq_length / batch.context_parallel * batch.micro_batch_size
    n_bytes = 2.0 * tokens * task.model.hidden / batch.tensor_parallel
    return 2.0 * network.send(crosses, n_bytes, task.constants)
