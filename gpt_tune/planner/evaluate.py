"""Owns asking memory and timing about layouts of one request, many at once or one in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpt_tune import calibration, memory, timing
from gpt_tune.calibration import Calibration
from gpt_tune.layouts import legality
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.legality import Setting
from gpt_tune.layouts.trainers import is_finetune
from gpt_tune.memory import MemoryEstimate, finetune_layouts
from gpt_tune.planner import finetune_time
from gpt_tune.planner.types import PlanRequest
from gpt_tune.timing import StepEstimate

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
# A layout more likely to run out of memory than not is no plan.
LARGEST_OOM_PROBABILITY = 0.5


@dataclass(frozen=True)
class Evaluator:
    """The arithmetic of one request."""

    request: PlanRequest

    @cached_property
    def calibration(self) -> Calibration:
        return calibration.load(self.request.node, self.request.cluster)

    @cached_property
    def setting(self) -> Setting:
        r = self.request
        return Setting(r.model, r.node, r.trainer, r.gpus, r.seq_length)

    def oom_probability(self, batch: LayoutBatch) -> tuple[Floats, Floats]:
        """Probability of running out of memory (0 where the GPU's memory is unknown), and device GiB."""
        r = self.request
        if is_finetune(r.trainer):
            found = finetune_layouts.figures_of(self._finetune_memory(batch))
        else:
            found = memory.estimate_batch(r.model, r.node, r.trainer, batch, r.seq_length, self.calibration)
        unknown = found.oom_probability is None
        return (np.zeros(len(batch)) if unknown else np.asarray(found.oom_probability)), found.device_gib

    def memory_share(self, device_gib: Floats) -> Floats:
        """Device memory as a share of the GPU's; 0 where that is unknown."""
        limit = memory.limit_gib(self.request.node)
        return np.zeros(len(device_gib)) if limit is None else np.asarray(device_gib / limit)

    def seconds(self, batch: LayoutBatch) -> Floats:
        """Step time of each layout."""
        r = self.request
        if is_finetune(r.trainer):
            steps = self._finetune_steps(batch)
            return np.array([step.seconds for step in steps], dtype=np.float64)
        return timing.estimate_batch(r.model, r.node, r.trainer, batch, r.seq_length, self.calibration)

    def fits(self, batch: LayoutBatch) -> Bools:
        """Which layouts are legal and more likely to fit than not."""
        return legality.legal(batch, self.setting) & (
            self.oom_probability(batch)[0] <= LARGEST_OOM_PROBABILITY
        )

    def memory(self, layouts: Sequence[Layout]) -> list[MemoryEstimate]:
        """Memory of each layout, stage by stage."""
        r = self.request
        batch = LayoutBatch.of(layouts)
        if is_finetune(r.trainer):
            return self._finetune_memory(batch)
        return memory.estimate_many(r.model, r.node, r.trainer, batch, r.seq_length, self.calibration)

    def steps(self, layouts: Sequence[Layout]) -> list[StepEstimate]:
        """Step time of each layout, part by part."""
        r = self.request
        batch = LayoutBatch.of(layouts)
        if is_finetune(r.trainer):
            return self._finetune_steps(batch)
        steps = timing.estimate_many(r.model, r.node, r.trainer, batch, r.seq_length, self.calibration)
        # The hardware catalogue states no fp32 peak, so there is nothing to be a share of.
        return [
            replace(step, mfu=None, hfu=None) if x.precision == "fp32" else step
            for x, step in zip(layouts, steps)
        ]

    def _finetune_memory(self, batch: LayoutBatch) -> list[MemoryEstimate]:
        r = self.request
        return finetune_layouts.estimate_layouts(
            r.model, r.node, r.trainer, batch, r.seq_length, self.calibration, r.tuning
        )

    def _finetune_steps(self, batch: LayoutBatch) -> list[StepEstimate]:
        r = self.request
        return finetune_time.estimate_many(r.model, r.node, r.trainer, batch, r.seq_length, r.tuning)
