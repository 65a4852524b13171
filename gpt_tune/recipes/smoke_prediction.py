"""Owns what a smoke run is expected to do: real steps of its trainer, timed here for half a second."""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache

from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.schema import Smoke
from gpt_tune.recipes.base import Prediction
from gpt_tune.resources import data_dir

VOCAB = 128  # the shipped text is ASCII; one byte is one token

# A step above this many FLOPs takes longer than the half second: a smaller one is timed and scaled.
_PROBE_FLOPS = 1e10
# Step time of a whole run over the estimate: 0.39 to 1.55 for 13 shapes on 2 cores that other jobs loaded
# four- to elevenfold; 0.9 to 1.15 on an idle machine.
_LOW, _HIGH = 0.4, 2.5


@dataclass(frozen=True, slots=True)
class Timing:
    """Steps timed on this machine: how many, and the usual seconds of one step of the whole model."""

    steps: int
    seconds: float


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


def probe_of(smoke: Smoke) -> Smoke:
    """The same model with as many sequences, then layers, as half a second allows."""
    probe = dataclasses.replace(smoke, seconds=1, steps=None)
    while trainer_flops(probe, probe.micro_batch_size) > _PROBE_FLOPS:
        if probe.micro_batch_size > 1:
            probe = dataclasses.replace(probe, micro_batch_size=(probe.micro_batch_size + 1) // 2)
        elif probe.layers > 1:
            probe = dataclasses.replace(probe, layers=(probe.layers + 1) // 2)
        else:
            break
    return probe


@lru_cache(maxsize=32)
def measure(layers: int, hidden: int, heads: int, seq_length: int, micro_batch_size: int) -> Timing | None:
    """Steps of the shipped trainer timed in a process of its own; None when that fails."""
    smoke = Smoke(
        layers=layers, hidden=hidden, heads=heads, seq_length=seq_length, micro_batch_size=micro_batch_size
    )
    probe = probe_of(smoke)
    arguments = {
        "--layers": probe.layers, "--hidden": hidden, "--heads": heads, "--seq-length": seq_length,
        "--micro-batch-size": probe.micro_batch_size,
    }  # fmt: skip
    program = data_dir("templates") / "smoke" / "trainer" / "probe.py"
    try:
        done = subprocess.run(
            [sys.executable, "-B", str(program), *(str(w) for pair in arguments.items() for w in pair)],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        times = [float(t) for t in json.loads(done.stdout)["seconds"]]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return None
    scale = trainer_flops(smoke, micro_batch_size) / trainer_flops(probe, probe.micro_batch_size)
    return Timing(len(times), statistics.median(times) * scale)


def predict(smoke: Smoke, scheduler: str) -> Prediction:
    """Prediction of a CPU run. On a cluster the nodes may be other machines, which its source says."""
    timing = measure(smoke.layers, smoke.hidden, smoke.heads, smoke.seq_length, smoke.micro_batch_size)
    if timing is None:
        return Prediction(source="no step of the trainer could be timed on this machine")
    flops = model_flops(smoke, smoke.micro_batch_size)
    elsewhere = "; a compute node may differ, and with GPUs and PyTorch it is faster"
    steps = "1 step" if timing.steps == 1 else f"{timing.steps} steps"
    return Prediction(
        step_seconds=timing.seconds,
        step_low=_LOW * timing.seconds,
        step_high=_HIGH * timing.seconds,
        model_tflops=flops / timing.seconds / 1e12,
        model_flops_per_step=flops,
        tokens_per_step=smoke.micro_batch_size * smoke.seq_length,
        total_steps=smoke.steps or max(1, round(smoke.seconds / timing.seconds)),
        source=f"estimate from {steps} timed on this machine" + (elsewhere if scheduler == "slurm" else ""),
    )
