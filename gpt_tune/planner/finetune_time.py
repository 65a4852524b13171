"""Owns a rough step time of fine-tuning jobs, good enough to rank them and to say hours or days.

Constants are read off 21 runs on one H200 (Qwen3 and Llama shapes, 8 to 36 layers): these jobs are bound by the
host at small micro batches, and by unfused elementwise kernels at large ones, far from matrix-product speed.
Three runs on two H200 (1B in 4 bits; DDP, ZeRO-2, ZeRO-3) took 0.94 to 1.37 times what these constants say.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.memory.finetune import FineTune, Tuning, adapter_parameters, quantised_bytes_per_weight
from gpt_tune.memory.finetune_layouts import ANY, job_of
from gpt_tune.models import flops, parameters
from gpt_tune.models.shape import ModelShape
from gpt_tune.timing import StepEstimate

# Half-width of the 90 % interval, as a factor.
UNSURE = 1.6
# Host seconds to issue one layer's kernels once (forward; backward counts twice, recompute once more).
HOST_SECONDS = {"qlora": 5.4e-3, "lora": 3.5e-3, "full": 1.9e-3}
# Times the host work grows with ZeRO-3, whose hooks fetch every module's weights from Python.
ZERO3_HOST = 3.5
# Bytes read and written by elementwise kernels for each input and output element of an adapted matrix.
ELEMENTWISE_BYTES = {"qlora": 32.0, "lora": 24.0, "full": 12.0}
# Shares of the best large-product rate, of memory bandwidth and of a link's wire rate that these programs reach.
COMPUTE_SHARE, MEMORY_SHARE, LINK_SHARE = 0.8, 0.8, 0.7
_LOGIT_TRAFFIC = 50.0  # bytes a logit over forward and backward


@dataclass(frozen=True, slots=True)
class _Micro:
    """Seconds of one micro batch: on the GPU, and for the host to issue it."""

    gpu: float
    host: float

    @property
    def total(self) -> float:
        return float((self.gpu**4 + self.host**4) ** 0.25)


def estimate_many(
    model: ModelShape,
    node: Node,
    trainer: Trainer,
    batch: LayoutBatch,
    seq_length: int,
    tuning: Tuning = ANY,
) -> list[StepEstimate]:
    """The step time of each layout, split into what it is spent on."""
    return [_estimate(model, node, trainer, batch.row(i), seq_length, tuning) for i in range(len(batch))]


def _estimate(
    model: ModelShape, node: Node, trainer: Trainer, layout: Layout, seq_length: int, tuning: Tuning
) -> StepEstimate:
    job = job_of(layout, trainer, seq_length, tuning)
    micro = _micro(model, node, job)
    steps = layout.gradient_accumulation_steps
    compute, other = steps * micro.gpu, steps * (micro.total - micro.gpu)
    data = _communication(model, node, job, steps)
    trained = parameters.total(model) if job.method == "full" else adapter_parameters(model, job)
    shards = 1 if job.strategy == "ddp" else job.gpus
    optimizer = 30.0 * trained / shards / (MEMORY_SHARE * node.gpu.memory_bandwidth_gbs * 1e9)
    seconds = compute + data + optimizer + other
    tokens = layout.global_batch_size * seq_length
    needed, ran = _flops(model, job, float(tokens))
    per_gpu = seconds * layout.gpus * 1e12
    peak = node.gpu.bf16_tflops
    return StepEstimate(
        seconds=seconds,
        low=seconds / UNSURE,
        high=seconds * UNSURE,
        compute=compute,
        tensor_parallel=0.0,
        context_parallel=0.0,
        expert_parallel=0.0,
        pipeline_bubble=0.0,
        pipeline_p2p=0.0,
        data_parallel=data,
        optimizer=optimizer,
        other=other,
        model_tflops=needed / per_gpu,
        hardware_tflops=ran / per_gpu,
        mfu=needed / per_gpu / peak if peak > 0 else None,
        hfu=ran / per_gpu / peak if peak > 0 else None,
        tokens_per_second_per_gpu=tokens / seconds / layout.gpus,
    )


def _flops(model: ModelShape, job: FineTune, tokens: float) -> tuple[float, float]:
    """FLOPs that training needs, and those that run. Frozen weights need no gradient of their own: two thirds."""
    whole = flops.model_flops(model, job.seq_length, tokens)
    needed = whole if job.method == "full" else whole * 2.0 / 3.0
    again = whole / 3.0 if job.gradient_checkpointing else 0.0
    return needed, needed + again


def _micro(model: ModelShape, node: Node, job: FineTune) -> _Micro:
    tokens = float(job.micro_batch_size * job.seq_length)
    passes = 4.0 if job.gradient_checkpointing else 3.0
    bandwidth = MEMORY_SHARE * node.gpu.memory_bandwidth_gbs * 1e9
    traffic = tokens * model.layers * ELEMENTWISE_BYTES[job.method] * _widths(model) * passes
    traffic += tokens * model.vocab * _LOGIT_TRAFFIC
    if job.method == "qlora":
        # Each pass over a 4-bit matrix writes it out in 16 bits and reads it again.
        weights = parameters.total(model) - 2 * model.vocab * model.hidden
        traffic += (passes - 1.0) * weights * (quantised_bytes_per_weight(job.double_quantisation) + 4.0)
    rate = COMPUTE_SHARE * node.gpu.bf16_achievable_tflops * 1e12
    host = model.layers * passes * HOST_SECONDS[job.method]
    return _Micro(
        gpu=_flops(model, job, tokens)[1] / rate + traffic / bandwidth,
        host=host * (ZERO3_HOST if job.strategy == "zero3" else 1.0),
    )


def _widths(model: ModelShape) -> float:
    """Inputs and outputs of all matrices of a layer, elements a token."""
    query, keys = model.heads * model.head_size, model.kv_heads * model.head_size
    width = model.experts_per_token * model.expert_ffn + model.shared_expert_ffn if model.moe else model.ffn
    attention = 2 * (model.hidden + query) + 2 * (model.hidden + keys)
    return float(attention + (3 if model.gated_mlp else 2) * (model.hidden + width))


def _communication(model: ModelShape, node: Node, job: FineTune, steps: int) -> float:
    """Exposed seconds: one reduction of gradients a step, and ZeRO-3's gathering of all weights in every pass."""
    if job.gpus == 1:
        return 0.0
    inside = job.gpus <= node.nvlink_domain_gpus
    link = LINK_SHARE * 1e9 * (node.gpu.nvlink_gbs if inside else node.network_gbs_per_gpu)
    share = (job.gpus - 1) / job.gpus
    total = float(parameters.total(model))
    trained = total if job.method == "full" else float(adapter_parameters(model, job))
    width = 4.0 if job.strategy == "ddp" else 2.0
    seconds = 2.0 * width * trained * share / link
    if job.strategy == "zero2":
        # Gradients are reduced after every micro batch.
        seconds += (steps - 1) * width * trained * share / link
    if job.strategy == "zero3":
        each = quantised_bytes_per_weight(job.double_quantisation) if job.method == "qlora" else 2.0
        passes = 3.0 if job.gradient_checkpointing else 2.0
        seconds = steps * (passes * each * total + width * trained) * share / link
    return seconds
