"""Owns reading a layout as a fine-tuning job, and the memory of many of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpt_tune.calibration.constants import Calibration
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.layouts.trainers import features
from gpt_tune.memory.finetune import FineTune, Strategy, Tuning, estimate_finetune
from gpt_tune.memory.types import PEAK_PHASES, MemoryBatch, MemoryEstimate
from gpt_tune.models.shape import ModelShape

ANY = Tuning()


def job_of(layout: Layout, trainer: Trainer, seq_length: int, tuning: Tuning = ANY) -> FineTune:
    """The job: ZeRO 0 is DDP, full recompute is gradient checkpointing.

    Layouts that the rules refuse (tensor parallelism, say) are read as if every GPU were data-parallel.
    """
    method = features(trainer).finetune
    if method is None:
        raise ValueError(f"{trainer.name} does not fine-tune")
    strategy: Strategy = "ddp" if layout.zero_stage == 0 else "zero3" if layout.zero_stage == 3 else "zero2"
    size = tuning.eval_batch_size
    return FineTune(
        method=method,
        strategy=strategy,
        gpus=layout.gpus,
        micro_batch_size=layout.micro_batch_size,
        seq_length=seq_length,
        gradient_checkpointing=layout.recompute.granularity != "none",
        optimizer=tuning.optimizer_of(method, strategy),
        lora_rank=tuning.lora_rank,
        lora_dropout=tuning.lora_dropout,
        lora_targets=tuning.lora_targets,
        double_quantisation=tuning.double_quantisation,
        flash_attention=layout.flash_attention,
        gradient_accumulation_steps=layout.gradient_accumulation_steps,
        eval_batch_size=layout.micro_batch_size if size is None else size,
    )


def estimate_layouts(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    batch: LayoutBatch,
    seq_length: int,
    calibration: Calibration | None = None,
    tuning: Tuning = ANY,
) -> list[MemoryEstimate]:
    """Memory of every layout of the batch."""
    return [
        estimate_finetune(model, node, job_of(batch.row(i), trainer, seq_length, tuning), calibration)
        for i in range(len(batch))
    ]


def figures_of(estimates: Sequence[MemoryEstimate]) -> MemoryBatch:
    """The top-level figures of estimates, as columns."""
    chances = [e.oom_probability for e in estimates]
    return MemoryBatch(
        allocated_gib=np.array([e.allocated_gib for e in estimates], dtype=np.float64),
        reserved_gib=np.array([e.reserved_gib for e in estimates], dtype=np.float64),
        device_gib=np.array([e.device_gib for e in estimates], dtype=np.float64),
        low_gib=np.array([e.low_gib for e in estimates], dtype=np.float64),
        high_gib=np.array([e.high_gib for e in estimates], dtype=np.float64),
        oom_probability=None if None in chances else np.array(chances, dtype=np.float64),
        peak_phase=np.array([PEAK_PHASES.index(e.peak_phase) for e in estimates], dtype=np.int64),
        worst_stage=np.zeros(len(estimates), dtype=np.int64),
        limit_gib=estimates[0].limit_gib if estimates else None,
    )
