"""Owns the named constants of the memory model: default, unit, source. A calibration may override any of them."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_tune.calibration.constants import Calibration
from gpt_tune.errors import unknown_name

_H200 = "one- and two-GPU H200 runs of Megatron-DeepSpeed (driver 580, torch 2.11, NCCL 2.28.9)"


@dataclass(frozen=True, slots=True)
class Constant:
    """One number of the memory model that is measured rather than derived."""

    default: float
    unit: str
    meaning: str
    source: str


CONSTANTS: dict[str, Constant] = {
    "cluster_gib": Constant(
        0.0,
        "GiB",
        "added to device memory: what this cluster's software takes beyond the terms below",
        "the one additive constant of a cluster; fitted by `validate --fit` and `calibrate`",
    ),
    "context_gib": Constant(
        0.90,
        "GiB",
        "CUDA context (0.61 bare) and the modules that cuBLAS, NCCL and PyTorch load",
        f"{_H200}: what is left of memory outside the allocator after the communicators",
    ),
    "idle_communicator_gib": Constant(
        0.38, "GiB", "communicator of a process group of one rank", f"{_H200}: the step between runs"
    ),
    "communicator_gib": Constant(
        1.34, "GiB", "communicator of a process group that has peers", f"{_H200}: two GPUs against one"
    ),
    "layer_gap": Constant(
        0.40,
        "share of one layer's activations",
        "cached blocks of a layer that nothing else can use",
        "replays of the trainer's allocations against PyTorch's caching allocator (about 1,600 layouts)",
    ),
    "waiting_gap": Constant(
        0.15,
        "share of the checkpoints of micro batches in flight",
        "cached blocks that checkpoints of other micro batches cut up: a pipeline's come and go in another order",
        "replays of BigScience's fork against PyTorch's caching allocator, stage 0 of 656 random pipelines with full "
        "recompute, all together (0.20 with BF16_Optimizer alone, 0.10 with ZeRO-1 in fp16 alone)",
    ),
    "logits_gap": Constant(
        0.43, "share of one fp32 copy of the logits", "as layer_gap, for the loss", "the same replays"
    ),
    "step_gap": Constant(
        0.15,
        "share of the optimizer step's borrowed memory",
        "chance that the second step needs its fp32 gradients in a new block, because the first one's was split",
        "the same replays, and H200 runs, in which it happens or does not",
    ),
    "held_copies": Constant(
        16.0,
        "hidden-state copies",
        "all-reduced tensors whose blocks wait for the GPU before they serve again (the host runs ahead of it)",
        "estimate: a launch queue of 1,024 kernels is 10 to 20 layers long; PyTorch ProcessGroupNCCL recordStream",
    ),
    "error": Constant(
        0.05,
        "natural-log units",
        "standard deviation of measured over predicted device memory: the interval and the risk follow from it",
        "published runs of known kind, no constant fitted",
    ),
    "firm_gap": Constant(
        0.25,
        "share of the reserved gap",
        "cached memory that cannot be freed when an allocation fails, because parts of its blocks are in use",
        "estimate: tried as 0, 0.25, 0.5 and 1 on 108 published runs, the calls differ on one (none fails at 0)",
    ),
    "finetune_gap": Constant(
        1.0,
        "share of one fp32 copy of the logits",
        "cached blocks that the logits of fine-tuning leave behind",
        "17 fine-tuning runs on one H200: 0.7 to 1.6",
    ),
    "expandable_gap": Constant(
        0.80,
        "share",
        "what remains of the reserved gap with expandable_segments:True",
        f"{_H200}: five pairs of runs, 0.3 to 1.4",
    ),
}


def value(calibration: Calibration | None, name: str, trainer: str = "") -> float:
    """The constant `name`: the calibration's (for this trainer, else for any), else the default."""
    if name not in CONSTANTS:
        raise unknown_name("memory constant", name, CONSTANTS)
    if calibration is not None:
        for key in (f"{trainer}.{name}", name):
            if key in calibration.memory:
                return float(calibration.memory[key])
    return CONSTANTS[name].default
