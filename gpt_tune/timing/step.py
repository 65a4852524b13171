"""Owns the step: the parts of its time, and their sum."""

from __future__ import annotations

import numpy as np

from gpt_tune.calibration.constants import Calibration
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Trainer
from gpt_tune.models.shape import ModelShape
from gpt_tune.timing.constants import resolve
from gpt_tune.timing.pieces import pieces
from gpt_tune.timing.pipeline import pipeline
from gpt_tune.timing.task import Floats, Ints, Task, add
from gpt_tune.timing.update import update

PARTS = (
    "compute",
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "pipeline_bubble",
    "pipeline_p2p",
    "data_parallel",
    "optimizer",
    "other",
)


def parts(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    batch: LayoutBatch,
    seq_length: int | Ints,
    calibration: Calibration | None,
) -> dict[str, Floats]:
    """Exposed seconds by part, a row per layout. seq_length: one for all, or one a layout."""
    constants = resolve(node, trainer, calibration)
    lengths = np.broadcast_to(np.asarray(seq_length, dtype=np.int64), (len(batch),))
    task = Task(model, trainer, batch, lengths, node.nvlink_domain_gpus, constants)
    flow = pipeline(task, pieces(task))
    traffic, optimizer = update(task)
    columns = {
        "compute": flow.work["compute"],
        "tensor_parallel": flow.work["tensor"],
        "context_parallel": flow.work["context"],
        "expert_parallel": flow.work["expert"],
        "pipeline_bubble": flow.bubble,
        "pipeline_p2p": flow.sends,
        "data_parallel": traffic,
        "optimizer": optimizer,
        "other": flow.work["other"] + constants.step,
    }
    gpus = batch.tensor_parallel * batch.pipeline_parallel * task.replicas
    doublings = np.log2(np.maximum(gpus / node.gpus_per_node, 1.0))
    columns["other"] = columns["other"] + total(columns) * (constants.jitter * doublings)
    if constants.scale != 1.0:
        columns = {name: constants.scale * column for name, column in columns.items()}
    return columns


def total(columns: dict[str, Floats]) -> Floats:
    """The parts added in the order of the contract, so that a reader's sum is exactly `seconds`."""
    return add(columns[name] for name in PARTS)
