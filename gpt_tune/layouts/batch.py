"""Owns many layouts at once, as arrays, so that the search is arithmetic on columns and not a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from gpt_tune.layouts.layout import Fusions, Layout, Recompute

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
GRANULARITIES = ("none", "selective", "full")
METHODS = (None, "uniform", "block")
PRECISIONS = ("bf16", "fp16", "fp32", "fp8")
CONTEXT_METHODS = (None, "ring", "ulysses")


@dataclass(frozen=True, slots=True)
class LayoutBatch:
    """n layouts; every column has shape (n,).

    recompute_granularity, recompute_method, precision and context_method are indices into the tuples of
    this module. recompute_layers is 0 where the layout has null. Fusions are one for the whole batch.
    """

    tensor_parallel: Ints
    pipeline_parallel: Ints
    virtual_pipeline: Ints
    context_parallel: Ints
    context_method: Ints
    expert_parallel: Ints
    data_parallel: Ints
    sequence_parallel: Bools
    zero_stage: Ints
    micro_batch_size: Ints
    gradient_accumulation_steps: Ints
    global_batch_size: Ints
    recompute_granularity: Ints
    recompute_method: Ints
    recompute_layers: Ints
    precision: Ints
    flash_attention: Bools
    fusions: Fusions = field(default_factory=Fusions)

    def __len__(self) -> int:
        return len(self.tensor_parallel)

    def take(self, which: NDArray[np.intp] | Bools) -> LayoutBatch:
        """The rows chosen by an index array or a mask."""
        return LayoutBatch(
            **{f.name: getattr(self, f.name)[which] for f in fields(self) if f.name != "fusions"},
            fusions=self.fusions,
        )

    @classmethod
    def join(cls, parts: Sequence[LayoutBatch]) -> LayoutBatch:
        """Several batches, of equal fusions, as one."""
        return cls(
            **{
                f.name: np.concatenate([getattr(p, f.name) for p in parts])
                for f in fields(cls)
                if f.name != "fusions"
            },
            fusions=parts[0].fusions,
        )

    def row(self, i: int) -> Layout:
        """Layout number i."""
        return Layout(
            tensor_parallel=int(self.tensor_parallel[i]),
            pipeline_parallel=int(self.pipeline_parallel[i]),
            virtual_pipeline=int(self.virtual_pipeline[i]),
            context_parallel=int(self.context_parallel[i]),
            context_method=CONTEXT_METHODS[self.context_method[i]],  # type: ignore[arg-type]
            expert_parallel=int(self.expert_parallel[i]),
            data_parallel=int(self.data_parallel[i]),
            sequence_parallel=bool(self.sequence_parallel[i]),
            zero_stage=int(self.zero_stage[i]),
            micro_batch_size=int(self.micro_batch_size[i]),
            gradient_accumulation_steps=int(self.gradient_accumulation_steps[i]),
            global_batch_size=int(self.global_batch_size[i]),
            recompute=Recompute(
                granularity=GRANULARITIES[self.recompute_granularity[i]],  # type: ignore[arg-type]
                method=METHODS[self.recompute_method[i]],  # type: ignore[arg-type]
                layers=int(self.recompute_layers[i]) or None,
            ),
            precision=PRECISIONS[self.precision[i]],  # type: ignore[arg-type]
            flash_attention=bool(self.flash_attention[i]),
            fusions=self.fusions,
        )

    @classmethod
    def of(cls, layouts: Sequence[Layout]) -> LayoutBatch:
        """A batch of given layouts; their fusions must be equal."""

        def ints(values: list[int]) -> Ints:
            return np.asarray(values, dtype=np.int64)

        return cls(
            tensor_parallel=ints([x.tensor_parallel for x in layouts]),
            pipeline_parallel=ints([x.pipeline_parallel for x in layouts]),
            virtual_pipeline=ints([x.virtual_pipeline for x in layouts]),
            context_parallel=ints([x.context_parallel for x in layouts]),
            context_method=ints([CONTEXT_METHODS.index(x.context_method) for x in layouts]),
            expert_parallel=ints([x.expert_parallel for x in layouts]),
            data_parallel=ints([x.data_parallel for x in layouts]),
            sequence_parallel=np.asarray([x.sequence_parallel for x in layouts], dtype=np.bool_),
            zero_stage=ints([x.zero_stage for x in layouts]),
            micro_batch_size=ints([x.micro_batch_size for x in layouts]),
            gradient_accumulation_steps=ints([x.gradient_accumulation_steps for x in layouts]),
            global_batch_size=ints([x.global_batch_size for x in layouts]),
            recompute_granularity=ints([GRANULARITIES.index(x.recompute.granularity) for x in layouts]),
            recompute_method=ints([METHODS.index(x.recompute.method) for x in layouts]),
            recompute_layers=ints([x.recompute.layers or 0 for x in layouts]),
            precision=ints([PRECISIONS.index(x.precision) for x in layouts]),
            flash_attention=np.asarray([x.flash_attention for x in layouts], dtype=np.bool_),
            fusions=layouts[0].fusions if layouts else Fusions(),
        )
