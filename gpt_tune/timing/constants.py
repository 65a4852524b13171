"""Owns the constants of step time: their names, units and defaults, and how a calibration overrides them.

A calibration's `timing` table may hold any name of `DEFAULTS`: bare (for every trainer of that cluster), with
the trainer in front ("megatron-lm.gemm_fraction") or with trainer and version ("megatron-lm@nemo.overlap").
The longest name that exists wins, and a calibration wins over a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpt_tune.calibration.constants import Calibration
from gpt_tune.hardware.parts import Gpu, Node
from gpt_tune.layouts.layout import Trainer

# Fractions are of the GPU's or node's own figures, so that they carry over to GPUs nobody has measured.
# Defaults: fitted to runs on H200 (gemm.csv, nccl.csv and runs of that cluster's calibration) where one
# is measurable on one or two GPUs, else the figure of the source beside it.
DEFAULTS: Mapping[str, float] = {
    # Large 16-bit matrix products inside a step, as a fraction of the GPU's best measured rate.
    "gemm_fraction": 0.88,
    # B200 meets its power limit in any long run of products.
    "blackwell.gemm_fraction": 0.66,
    # A100 keeps its clock, and the waste in the last wave is counted apart (wave_tail): chosen on BigScience's,
    # Megatron-LM's, LLM Foundry's and InternEvo's runs, each predicted blindly.
    "ampere.gemm_fraction": 0.96,
    # Time a matrix product takes beside its FLOPs: ramp, tail and wave quantisation, microseconds.
    "gemm_fixed_us": 10.0,
    # Filling and draining a tile costs as much as this many more elements of a product's inner dimension
    # (60 fits gemm.csv on H200; A100 likes 100 to 300).
    "short_inner": 100.0,
    # Waste in the last wave of tiles, as a share of one wave of 256 x 128 tiles. cuBLAS on A100 and V100
    # wastes about half a wave (BigScience: 14 % of a step between micro batch 1 and 4); on H200 none is seen.
    "wave_tail": 0.0,
    "ampere.wave_tail": 0.4,
    "volta.wave_tail": 0.4,
    # Time between two kernels on a busy GPU: launch, ramp and drain, microseconds.
    "gap_us": 3.0,
    # Rate of fp8 products over 16-bit ones (quantisation included).
    "fp8_speedup": 1.45,
    "megatron-lm@nemo.fp8_speedup": 1.75,
    "blackwell.fp8_speedup": 1.90,
    # FlashAttention over large matrix products, forward; causal half counted.
    "attention_fraction": 0.45,
    # cuDNN's and FlashAttention 3's kernels.
    "megatron-lm@nemo.attention_fraction": 0.60,
    "blackwell.attention_fraction": 0.80,
    # Memory-bound kernels, as a fraction of the GPU's memory bandwidth.
    "memory_fraction": 0.72,
    # Fused kernels of the A100 years (apex, fused softmax) reached less: BigScience's runs.
    "ampere.memory_fraction": 0.65,
    # 1: pointwise chains run as one kernel (TorchScript fusion, apex, Transformer Engine); 0: one by one.
    "fused_pointwise": 0.0,
    "megatron-lm.fused_pointwise": 1.0,
    "fsdp.fused_pointwise": 0.5,
    # Bytes moved per parameter to add a micro-batch's gradient to the sum: read two and write one 16-bit
    # element, and the trainer's own sum (DeepSpeed's flat buffer) about as much again. Megatron-LM adds in the
    # product's epilogue (gradient accumulation fusion), where most of 8 bytes hides.
    "gradient_bytes": 10.0,
    "megatron-lm.gradient_bytes": 3.0,
    "fsdp.gradient_bytes": 4.0,
    # Host time to issue one kernel from Python, microseconds. Backward kernels cost the share below.
    "host_us": 50.0,
    # Host time to gather or release one parameter tensor in ZeRO-3 (DeepSpeed), microseconds.
    "zero3_us": 400.0,
    # Host time a parameter tensor costs in DeepSpeed's ZeRO and fp16 optimizers (Python loops), microseconds.
    "tensor_us": 80.0,
    # Fixed host time of a step: data, loss reduction, logging, milliseconds.
    "step_ms": 6.0,
    "megatron-lm@nemo.step_ms": 100.0,
    # All-reduce bus bandwidth over NVLink as a fraction of its one-way rate (A100 0.78, H200 0.82, B200 0.76).
    "intra_fraction": 0.75,
    # Bus bandwidth of a pair of GPUs over that of all GPUs of the node (NCCL channels, link topology).
    "intra_pair": 1.0,
    # Fixed time of one collective of a pair of GPUs, or of one send, inside a node, microseconds.
    "intra_us": 20.0,
    # Bus bandwidth between nodes as a fraction of the NICs' wire rate (EFAv4 0.75-0.85).
    "inter_fraction": 0.75,
    # Fixed time of one collective or send between nodes, microseconds.
    "inter_us": 40.0,
    # Share of data-parallel traffic that hides under compute. Megatron-DeepSpeed reduces after the flush and
    # Megatron-LM does not overlap unless asked; NeMo's recipes ask, FSDP prefetches.
    "overlap": 0.0,
    "megatron-lm@nemo.overlap": 0.8,
    "fsdp.overlap": 0.8,
    # Share of tensor-parallel traffic that hides under compute (NeMo's user buffers).
    "tensor_overlap": 0.0,
    "megatron-lm@nemo.tensor_overlap": 0.3,
    # Growth of step time per doubling of the nodes: stragglers and jitter.
    "jitter": 0.003,
    # Whole step over what the constants above give: the one figure in which clusters of one kind mostly differ.
    "scale": 1.0,
    # Half-width of the 90 % interval, natural-log units: what the defaults reach on clusters never seen.
    "width_90": 0.35,
}


# Output elements of one wave: a 256 x 128 tile on each of about 108 (A100) multiprocessors.
_WAVE_OUTPUTS = 256 * 128 * 108


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of one node type and trainer in SI units: FLOP/s, bytes/s, seconds."""

    gemm_rate: float
    gemm_fixed: float
    short_inner: float
    tail_outputs: float
    gap: float
    fp8_speedup: float
    attention_rate: float
    memory_rate: float
    fused_pointwise: float
    gradient_bytes: float
    host: float
    zero3: float
    tensor: float
    step: float
    intra_rate: float
    intra_pair: float
    intra_latency: float
    inter_rate: float
    inter_latency: float
    overlap: float
    tensor_overlap: float
    jitter: float
    scale: float


def value(name: str, gpu: Gpu, trainer: Trainer, calibration: Calibration | None) -> float:
    """The constant `name`, from the calibration if it has it."""
    names = [
        f"{gpu.architecture}.{name}",
        f"{trainer.name}@{trainer.version}.{name}",
        f"{trainer.name}.{name}",
        name,
    ]
    tables = [DEFAULTS] if calibration is None else [calibration.timing, DEFAULTS]
    for table in tables:
        for key in names:
            if key in table:
                return float(table[key])
    raise KeyError(name)


def resolve(node: Node, trainer: Trainer, calibration: Calibration | None) -> Constants:
    """Constants for this node and trainer."""
    gpu = node.gpu

    def get(name: str) -> float:
        return value(name, gpu, trainer, calibration)

    gemm = gpu.bf16_achievable_tflops * 1e12 * get("gemm_fraction")
    return Constants(
        gemm_rate=gemm,
        gemm_fixed=get("gemm_fixed_us") * 1e-6,
        short_inner=get("short_inner"),
        tail_outputs=get("wave_tail") * _WAVE_OUTPUTS,
        gap=get("gap_us") * 1e-6,
        fp8_speedup=get("fp8_speedup"),
        attention_rate=gemm * get("attention_fraction"),
        memory_rate=gpu.memory_bandwidth_gbs * 1e9 * get("memory_fraction"),
        fused_pointwise=get("fused_pointwise"),
        gradient_bytes=get("gradient_bytes"),
        host=get("host_us") * 1e-6,
        zero3=get("zero3_us") * 1e-6,
        tensor=get("tensor_us") * 1e-6,
        step=get("step_ms") * 1e-3,
        intra_rate=max(gpu.nvlink_gbs, 16.0) * 1e9 * get("intra_fraction"),
        intra_pair=get("intra_pair"),
        intra_latency=get("intra_us") * 1e-6,
        inter_rate=max(node.network_gbs_per_gpu, 0.1) * 1e9 * get("inter_fraction"),
        inter_latency=get("inter_us") * 1e-6,
        overlap=get("overlap"),
        tensor_overlap=get("tensor_overlap"),
        jitter=get("jitter"),
        scale=get("scale"),
    )
