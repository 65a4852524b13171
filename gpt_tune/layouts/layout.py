"""Owns the numbers of one parallel layout and of a batch of them. Legality lives beside it, cost elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

Granularity = Literal["none", "selective", "full"]
Method = Literal["uniform", "block"]


@dataclass(frozen=True, slots=True)
class Recompute:
    """Activation recompute. uniform: layers per checkpointed chunk. block: layers recomputed per stage."""

    granularity: Granularity = "none"
    method: Method | None = None
    layers: int | None = None


@dataclass(frozen=True, slots=True)
class Fusions:
    """Fused kernels of Megatron-DeepSpeed; each maps to a `--no-...-fusion` flag."""

    masked_softmax: bool = True
    bias_gelu: bool = True
    bias_dropout: bool = True
    gradient_accumulation: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """How one training job is spread over GPUs (vocabulary of the JSON contract).

    data_parallel * tensor_parallel * pipeline_parallel * context_parallel is the number of GPUs.
    global_batch_size == micro_batch_size * gradient_accumulation_steps * data_parallel.
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    virtual_pipeline: int = 1
    context_parallel: int = 1
    context_method: Literal["ring", "ulysses"] | None = None
    expert_parallel: int = 1
    data_parallel: int = 1
    sequence_parallel: bool = False
    zero_stage: int = 0
    micro_batch_size: int = 1
    gradient_accumulation_steps: int = 1
    global_batch_size: int = 1
    recompute: Recompute = field(default_factory=Recompute)
    precision: Literal["bf16", "fp16", "fp32", "fp8"] = "bf16"
    flash_attention: bool = True
    fusions: Fusions = field(default_factory=Fusions)

    @property
    def gpus(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel * self.context_parallel * self.data_parallel

    @property
    def pipeline_engine(self) -> bool:
        """Whether Megatron-DeepSpeed runs its pipeline engine: always at ZeRO 0/1, never at 2/3."""
        return self.zero_stage < 2

    def to_json(self) -> dict[str, Any]:
        """The layout with every key of the contract present."""
        data: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, (Recompute, Fusions)):
                value = {g.name: getattr(value, g.name) for g in fields(value)}
            data[f.name] = value
        return data


@dataclass(frozen=True, slots=True)
class Trainer:
    """The training program whose rules apply. deepspeed is a version like "0.16.4", or None.

    gradient_accumulation_dtype: "fp32" | "bf16" | "fp16" | None for the trainer's own default.
    pipeline_engine: whether DeepSpeed's pipeline engine runs; None: at ZeRO 0 and 1 (Megatron-DeepSpeed's rule).
    dropout: hidden and attention dropout; None: 0.1 for LayerNorm models, 0 for RMSNorm models.
    expandable_segments: whether PyTorch's allocator runs with expandable_segments:True.
    """

    name: str = "megatron-deepspeed"
    version: str | None = None
    deepspeed: str | None = "0.16.4"
    gradient_accumulation_dtype: Literal["fp32", "bf16", "fp16"] | None = None
    pipeline_engine: bool | None = None
    dropout: float | None = None
    expandable_segments: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "deepspeed": self.deepspeed,
            "gradient_accumulation_dtype": self.gradient_accumulation_dtype,
        }
