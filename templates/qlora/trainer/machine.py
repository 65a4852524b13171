"""What this rank runs on: its place, its GPU, and what is wrong with it before anything is loaded."""

import os
import shutil
import socket


class MachineError(Exception):
    """A machine that cannot run this; the text is one sentence."""


class Place:
    """This process among the job's."""

    def __init__(self, environment=os.environ):
        self.rank = int(environment.get("RANK", "0"))
        self.local_rank = int(environment.get("LOCAL_RANK", "0"))
        self.ranks = int(environment.get("WORLD_SIZE", "1"))
        self.host = socket.gethostname()

    @property
    def leads(self):
        return self.rank == 0

    def say(self, text):
        """Print a line of the whole job: rank 0 only."""
        if self.leads:
            print(text, flush=True)


def check_packages(quantized, strategy, hub):
    """MachineError naming every package that is missing."""
    import importlib.util

    needed = ["torch", "transformers", "peft", "accelerate"]
    needed += ["bitsandbytes"] if quantized else []
    needed += ["deepspeed"] if strategy != "ddp" else []
    needed += ["datasets"] if hub else []
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise MachineError(
            f"Python packages are missing: {', '.join(missing)}. Install them in the job's environment."
        )


def check_gpu(place, quantized):
    """Look at this rank's GPU, compute something on it, and return (device, can do bf16, words)."""
    import torch

    if not torch.cuda.is_available():
        why = "no NVIDIA driver" if shutil.which("nvidia-smi") is None else "PyTorch sees no GPU"
        raise MachineError(f"rank {place.rank} on {place.host} has no usable GPU ({why}).")
    count = torch.cuda.device_count()
    if place.local_rank >= count:
        raise MachineError(
            f"rank {place.rank} on {place.host} wants GPU {place.local_rank} and sees {count}: "
            "ask for one task per GPU (--ntasks-per-node and --gres must agree)."
        )
    torch.cuda.set_device(place.local_rank)
    free, total = torch.cuda.mem_get_info()
    major, minor = torch.cuda.get_device_capability()
    name = torch.cuda.get_device_name()
    if free < 0.9 * total:
        print(
            f"rank {place.rank} on {place.host}: warning: only {free / 2**30:.1f} of {total / 2**30:.1f} GiB of the "
            "GPU are free; another program uses it",
            flush=True,
        )
    try:
        square = torch.ones(64, 64, device="cuda")
        if float((square @ square)[0, 0]) != 64.0:
            raise MachineError(f"rank {place.rank} on {place.host}: its GPU multiplies wrongly.")
        if quantized:
            _quantize_something(torch)
    except RuntimeError as error:
        raise MachineError(f"rank {place.rank} on {place.host}: its GPU cannot compute: {error}") from error
    slice_ = " (a MIG slice)" if "MIG" in name else ""
    words = f"{name}{slice_}, compute capability {major}.{minor}, {total / 2**30:.1f} GiB"
    # 16-bit brain floats are in hardware from compute capability 8.0 on (NVIDIA's table of capabilities).
    return "cuda", major >= 8, words


def _quantize_something(torch):
    import bitsandbytes.functional as functional

    packed, state = functional.quantize_4bit(torch.ones(64, 64, device="cuda"), quant_type="nf4")
    back = functional.dequantize_4bit(packed, state)
    if not torch.allclose(back, torch.ones_like(back), atol=0.1):
        raise MachineError(
            "bitsandbytes quantises wrongly on this GPU; install a build for its CUDA version."
        )
