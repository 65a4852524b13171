"""Owns the scalar facts of one estimate: model, trainer and sequence, turned into what the arithmetic needs."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_tune.errors import UserError
from gpt_tune.layouts.layout import Fusions, Trainer
from gpt_tune.layouts.trainers import accumulation_dtype
from gpt_tune.layouts.versions import deepspeed_at_least
from gpt_tune.models.shape import ModelShape
from gpt_tune.units import MIB

MEGATRON_DEEPSPEED = "megatron-deepspeed"
MEGATRON_LM = "megatron-lm"
FSDP = "fsdp"
BIGSCIENCE = "bigscience"  # a version of Megatron-DeepSpeed
NANOTRON = "nanotron"  # counted as a version of Megatron-LM
DEEPSPEED_HF = "deepspeed"  # Hugging Face models on DeepSpeed

# BF16_Optimizer frees 16-bit gradients after the step since this DeepSpeed; before it did so only at the next
# backward pass (bf16_optimizer.clear_lp_grads, read at tags v0.16.4 and v0.16.5).
_CLEARS_GRADIENTS_SINCE = (0, 16, 5)

# Adam's states are made in the first step since this DeepSpeed; before it a dry optimizer step made them
# (initialize_optimizer_states, read at tags v0.13.1 and v0.13.2).
_ADAM_IN_FIRST_STEP_SINCE = (0, 13, 2)

# The pipeline engine's backward runs the optimizer's hooks, which make its bucket, on every stage since this
# DeepSpeed, before it on the last stage only (pipe/engine.py, read at tags v0.18.3 to v0.18.6).
_HOOKS_IN_PIPELINE_SINCE = (0, 18, 5)

# ZeRO-1 reduces through a bucket of its own since this DeepSpeed; before it the engine took contiguous_gradients
# away and flattened gradients into copies at the reduction (_configure_zero_optimizer, read at tags v0.6.0 to v0.13.0).
_ZERO1_BUCKET_SINCE = (0, 13, 0)

# PyTorch used to keep the block of a tensor that went through a collective until the GPU had done it (recordStream);
# since 2.8 blocking collectives run on the current stream. DeepSpeed of that summer stands for the PyTorch beside it.
_NO_RECORDED_STREAMS_SINCE = (0, 17, 3)

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
    scripted_gelu: bool
    workspace: float
    old_gradient_clearing: bool
    adam_at_start: bool
    zero1_bucket: bool
    bucket_in_last_stage_only: bool
    records_streams: bool

    @property
    def deepspeed(self) -> bool:
        return self.trainer.name not in (MEGATRON_LM, FSDP)

    @property
    def repeats_keys(self) -> bool:
        """Keys and values are repeated to the number of query heads before attention."""
        return self.trainer.name != MEGATRON_LM

    @property
    def eager_norm(self) -> bool:
        """RMSNorm as Hugging Face's models write it."""
        return self.model.norm == "rmsnorm" and self.trainer.name not in (
            MEGATRON_DEEPSPEED,
            MEGATRON_LM,
            FSDP,
        )

    @property
    def has_score_buffer(self) -> bool:
        """Unfused attention writes into one buffer that is never freed; BigScience's older fork does not."""
        old = self.trainer.version == BIGSCIENCE
        return self.trainer.name in (MEGATRON_DEEPSPEED, MEGATRON_LM) and not old

    @property
    def mask_bytes(self) -> float:
        """Bytes an element that dropout after attention and MLP keeps.

        Megatron's scripted bias-dropout-add keeps a mask even at dropout 0 (measured).
        """
        return 1.0 if self.dropout > 0 or self.trainer.name == MEGATRON_DEEPSPEED else 0.0


def make(model: ModelShape, trainer: Trainer, seq_length: int, fusions: Fusions, hopper: bool) -> Setup:
    """The facts of one estimate; dropout and accumulation follow the trainer's defaults where it says nothing."""
    if seq_length < 1:
        raise UserError(f"The sequence length is {seq_length} tokens.", "The smallest is 1.")
    dropout = trainer.dropout
    if dropout is None:
        megatron = trainer.name in (MEGATRON_DEEPSPEED, MEGATRON_LM)
        dropout = DEFAULT_DROPOUT if megatron and model.norm == "layernorm" else 0.0
    # BigScience's fork of early 2022: PyTorch's older fuser makes one kernel of Megatron's bias-gelu
    # (fused_bias_gelu.py), and its jobs set CUDA_LAUNCH_BLOCKING=1, so that the host never runs ahead of the GPU
    # (tr11-176B-ml.slurm: "do not remove or the training will hang").
    old_fork = trainer.version == BIGSCIENCE
    return Setup(
        model=model,
        trainer=trainer,
        seq_length=seq_length,
        dropout=dropout,
        accumulates_fp32_without_zero=accumulation_dtype(0, "bf16", trainer) == "fp32",
        fused_softmax=fusions.masked_softmax,
        scripted_gelu=fusions.bias_gelu
        and trainer.name == MEGATRON_DEEPSPEED
        and model.linear_bias
        and not model.gated_mlp
        and not old_fork,
        old_gradient_clearing=not deepspeed_at_least(trainer, *_CLEARS_GRADIENTS_SINCE),
        adam_at_start=not deepspeed_at_least(trainer, *_ADAM_IN_FIRST_STEP_SINCE),
        zero1_bucket=deepspeed_at_least(trainer, *_ZERO1_BUCKET_SINCE),
        bucket_in_last_stage_only=not deepspeed_at_least(trainer, *_HOOKS_IN_PIPELINE_SINCE),
        records_streams=not deepspeed_at_least(trainer, *_NO_RECORDED_STREAMS_SINCE) and not old_fork,
        workspace=(HOPPER_WORKSPACE if hopper else OLDER_WORKSPACE),
    )
