"""Owns the scalar facts of one estimate: model, trainer and sequence, turned into what the arithmetic needs."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_tune.layouts.layout import Trainer
from gpt_tune.layouts.trainers import accumulation_dtype
from gpt_tune.models.shape import ModelShape
from gpt_tune.units import MIB

MEGATRON_DEEPSPEED = "megatron-deepspeed"
MEGATRON_LM = "megatron-lm"
FSDP = "fsdp"

# cuBLAS and cuBLASLt workspaces inside torch's allocator: 2 x 32 MiB from Hopper on, 2 x 8.1 MiB before
# (torch CUDABlas.cpp; the H200 runs show 64 MiB).
HOPPER_WORKSPACE = 64 * MIB
OLDER_WORKSPACE = 17 * MIB
DEFAULT_DROPOUT = 0.1  # Megatron's --hidden-dropout and --attention-dropout


@dataclass(frozen=True, slots=True)
class Setup:
    """What does not vary over a batch of layouts. seq_length in tokens; workspace: bytes of cuBLAS."""

    model: ModelShape
    trainer: Trainer
    seq_length: int
    dropout: float
    accumulates_fp32_without_zero: bool
    fused_softmax: bool
    workspace: float

    @property
    def deepspeed(self) -> bool:
        return self.trainer.name not in (MEGATRON_LM, FSDP)

    @property
    def has_score_buffer(self) -> bool:
        """Megatron's core attention writes scores into a global buffer that is never freed."""
        return self.trainer.name != FSDP


def make(model: ModelShape, trainer: Trainer, seq_length: int, fused_softmax: bool, hopper: bool) -> Setup:
    """The facts of one estimate; dropout and accumulation follow the trainer's defaults where it says nothing."""
    dropout = trainer.dropout
    if dropout is None:
        dropout = DEFAULT_DROPOUT if model.norm == "layernorm" else 0.0
    return Setup(
        model=model,
        trainer=trainer,
        seq_length=seq_length,
        dropout=dropout,
        accumulates_fp32_without_zero=accumulation_dtype(0, "bf16", trainer) == "fp32",
        fused_softmax=fused_softmax,
        workspace=(HOPPER_WORKSPACE if hopper else OLDER_WORKSPACE),
    )
