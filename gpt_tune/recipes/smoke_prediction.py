"""Owns what a smoke run is expected to do: a step-time estimate from a short measurement of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.schema import Smoke
from gpt_tune.recipes.base import Prediction

VOCAB = 128  # the shipped text is ASCII; one byte is one token
SOURCE = "estimate from a 0.2 s matrix product on this machine"

# Fitted to ten shapes of the NumPy trainer on one and two cores (hidden 32 to 1024): what a step costs
# besides its matrix products, in elementwise passes over each kind of array.
_PASSES_HIDDEN = 46  # norms, residuals, projections' biases: per token, layer and hidden
_PASSES_MLP = 72  # GELU and its slope: per token, layer and hidden
_PASSES_SCORES = 12  # softmax and its slope: per token, layer, head and position
_PASSES_LOGITS = 10
_PASSES_PARAMETERS = 14  # Adam
_SECONDS_PER_CALL = 1.4e-6  # NumPy's own cost of an operation on a small array
_CALLS_PER_LAYER = 250
_CALLS = 80
_CACHE_BYTES = 200_000  # beyond it an elementwise pass waits for memory
_MEMORY_FACTOR = 2.1
# 90 % of the runs tried lie within these factors of the estimate; the upper one allows for a busy machine.
_LOW, _HIGH = 0.75, 1.6


@dataclass(frozen=True, slots=True)
class MachineRate:
    """This machine's speed. flops_per_second: float32 matrix product; seconds_per_element: one pass."""

    flops_per_second: float
    seconds_per_element: float


def shape(smoke: Smoke) -> ModelShape:
    """The model a smoke run trains."""
    return ModelShape(
        id=f"smoke-{smoke.layers}x{smoke.hidden}",
        layers=smoke.layers,
        hidden=smoke.hidden,
        heads=smoke.heads,
        kv_heads=smoke.heads,
        ffn=4 * smoke.hidden,
        vocab=VOCAB,
        seq_length=smoke.seq_length,
        head_size=max(1, smoke.hidden // max(1, smoke.heads)),
        source="the smoke trainer in templates/smoke",
    )


def parameters(smoke: Smoke) -> int:
    """Parameters of that model; the tied output projection counts once."""
    h = smoke.hidden
    return (VOCAB + smoke.seq_length + 2) * h + smoke.layers * (12 * h * h + 13 * h)


def trainer_flops(smoke: Smoke, sequences: int) -> float:
    """FLOPs of one step as the trainer executes them: attention dense, nothing recomputed."""
    h, s = smoke.hidden, smoke.seq_length
    return 6.0 * sequences * s * (smoke.layers * (12 * h * h + 2 * s * h) + VOCAB * h)


def model_flops(smoke: Smoke, sequences: int) -> float:
    """Model FLOPs of one step: as above with causal attention halved."""
    h, s = smoke.hidden, smoke.seq_length
    return trainer_flops(smoke, sequences) - 6.0 * sequences * s * smoke.layers * s * h


def step_seconds(smoke: Smoke, rate: MachineRate) -> float:
    """Time of one NumPy step at these rates."""
    h, s = smoke.hidden, smoke.seq_length
    tokens = smoke.micro_batch_size * s
    elements = (
        smoke.layers * tokens * ((_PASSES_HIDDEN + _PASSES_MLP) * h + _PASSES_SCORES * smoke.heads * s)
        + _PASSES_LOGITS * tokens * VOCAB
        + _PASSES_PARAMETERS * parameters(smoke)
    )
    slower = _MEMORY_FACTOR if tokens * 4 * h * 4 > _CACHE_BYTES else 1.0
    calls = _CALLS + smoke.layers * _CALLS_PER_LAYER
    products = trainer_flops(smoke, smoke.micro_batch_size) / rate.flops_per_second
    return products + elements * slower * rate.seconds_per_element + calls * _SECONDS_PER_CALL


def threads(hidden: int) -> int:
    """Threads the trainer gives its matrix products (`_limit_threads` in templates/smoke)."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, 8) if hidden >= 256 else 1


@lru_cache(maxsize=32)
def measure(hidden: int, tokens: int) -> MachineRate | None:
    """Rates of this machine at the model's sizes; None when they cannot be measured."""
    count = str(threads(hidden))
    environment = {
        **os.environ, "OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count, "MKL_NUM_THREADS": count
    }  # fmt: skip
    probe = Path(__file__).with_name("matmul_probe.py")
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(probe), str(min(tokens, 4096)), str(hidden)],
            env=environment, capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
        return MachineRate(**json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return None


def predict(smoke: Smoke, scheduler: str, rate: MachineRate | None) -> Prediction:
    """Prediction of a CPU run. On a cluster the nodes may be other machines, which its source says."""
    if rate is None:
        return Prediction(source="this machine's speed could not be measured")
    seconds = step_seconds(smoke, rate)
    flops = model_flops(smoke, smoke.micro_batch_size)
    elsewhere = "; a compute node may differ, and with GPUs and PyTorch it is faster"
    return Prediction(
        step_seconds=seconds,
        step_low=_LOW * seconds,
        step_high=_HIGH * seconds,
        model_tflops=flops / seconds / 1e12,
        model_flops_per_step=flops,
        tokens_per_step=smoke.micro_batch_size * smoke.seq_length,
        total_steps=smoke.steps or max(1, round(smoke.seconds / seconds)),
        source=SOURCE + (elsewhere if scheduler == "slurm" else ""),
    )
