"""Owns the memory of fine-tuning: all weights, LoRA, or QLoRA, under DDP, ZeRO-2 or ZeRO-3.

The model code is Hugging Face's (transformers, peft, bitsandbytes); formulas follow what these libraries keep:
peft holds adapters in fp32 under DDP, bitsandbytes stores nf4 in blocks of 64 with one scale each, and
`prepare_model_for_kbit_training` turns everything that is not quantised into fp32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gpt_tune.calibration.constants import Calibration
from gpt_tune.errors import UserError, unknown_name
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Fusions, Layout, Recompute, Trainer
from gpt_tune.memory.activations import LayerBytes, layer_bytes
from gpt_tune.memory.columns import build
from gpt_tune.memory.constants import value
from gpt_tune.memory.estimator import limit_gib
from gpt_tune.memory.setup import DEEPSPEED_HF, make
from gpt_tune.memory.types import MemoryEstimate, StageMemory
from gpt_tune.memory.uncertainty import interval, oom_probability
from gpt_tune.models import parameters
from gpt_tune.models.shape import ModelShape
from gpt_tune.units import GIB

Method = Literal["full", "lora", "qlora"]
Strategy = Literal["ddp", "zero2", "zero3"]
Optimizer = Literal["adamw", "adamw_8bit", "paged_adamw_8bit"]

ALL_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
NF4_BLOCK = 64  # weights that share one scale (bitsandbytes)
SCALE_BLOCK = 256  # scales that share one fp32 scale under double quantisation
REDUCE_BUCKET = 2e8  # elements; the zero2 and zero3 configurations of the QLoRA case
MAX_LIVE = 1e9  # elements, stage3_max_live_parameters
# Standard deviation of log(measured / predicted) to assume: no run with a memory figure is at hand, and the
# QLoRA case's claims for an 8B model on 24 GB cards (12-14, 15-17 GB sharded) stand 10-25 % above this model.
UNTESTED_ERROR = 0.15


@dataclass(frozen=True, slots=True)
class FineTune:
    """One fine-tuning job. gpus are data-parallel; micro_batch_size sequences of seq_length tokens a GPU."""

    method: Method = "qlora"
    strategy: Strategy = "ddp"
    gpus: int = 1
    micro_batch_size: int = 1
    seq_length: int = 2048
    gradient_checkpointing: bool = True
    optimizer: Optimizer = "adamw"
    lora_rank: int = 16
    lora_dropout: float = 0.05
    lora_targets: tuple[str, ...] = ALL_TARGETS
    double_quantisation: bool = True
    flash_attention: bool = True


@dataclass(frozen=True, slots=True)
class _States:
    """Bytes on one GPU. transient: borrowed in forward and backward; in_step: borrowed in the optimizer step."""

    weights: float
    gradients: float
    optimizer: float
    buffers: float
    transient: float
    in_step: float


def adapter_parameters(model: ModelShape, job: FineTune) -> int:
    """Trainable parameters of the LoRA adapters: rank * (in + out) for each target matrix of each layer."""
    return model.layers * sum(job.lora_rank * (i + o) for i, o in _target_sizes(model, job))


def quantised_bytes_per_weight(double_quantisation: bool) -> float:
    """nf4: half a byte, and the block's scale (fp32, or 8 bits with an fp32 scale for every 256 of them)."""
    scale = (1.0 + 4.0 / SCALE_BLOCK) if double_quantisation else 4.0
    return 0.5 + scale / NF4_BLOCK


def estimate_finetune(
    model: ModelShape, node: Node, job: FineTune, calibration: Calibration | None = None
) -> MemoryEstimate:
    """Memory of one GPU of a fine-tuning job. Raises UserError for a job that cannot be."""
    _check(model, job)
    states = _states(model, job)
    layer, logits = _layer(model, job)
    kept = layer.input if job.gradient_checkpointing else layer.saved
    activations = model.layers * float(kept[0]) + _adapter_inputs(model, job, model.layers)
    again = float(layer.saved[0]) + _adapter_inputs(model, job, 1) if job.gradient_checkpointing else 0.0
    if job.gradient_checkpointing:
        activations = model.layers * float(kept[0])
    backward = again + float(np.maximum(layer.mlp_backward, layer.attention_backward)[0])
    resident = states.weights + states.optimizer + states.buffers
    training = resident + states.gradients + activations + states.transient + max(logits, backward)
    step = resident + states.gradients + states.in_step
    allocated = max(training, step)
    in_step = step > training
    gap = (
        value(calibration, "layer_gap") * float(layer.saved[0])
        + value(calibration, "logits_gap") * logits / 2.5
    )
    context = (
        value(calibration, "context_gib")
        + (value(calibration, "communicator_gib") if job.gpus > 1 else 0.0)
        + value(calibration, "cluster_gib")
    ) * GIB
    stage = StageMemory(
        stage=0,
        parameters=states.weights / GIB,
        gradients=states.gradients / GIB,
        optimizer=states.optimizer / GIB,
        activations=0.0 if in_step else activations / GIB,
        logits=0.0 if in_step else (logits / GIB if logits >= backward else 0.0),
        buffers=states.buffers / GIB,
        transient=(states.in_step if in_step else states.transient + (backward if backward > logits else 0.0))
        / GIB,
        reserved_gap=gap / GIB,
        context=context / GIB,
        total=(allocated + gap + context) / GIB,
    )
    return _estimate(node, stage, "optimizer" if in_step else "forward_backward", calibration)


def _estimate(node: Node, stage: StageMemory, phase: str, calibration: Calibration | None) -> MemoryEstimate:
    device = np.array([stage.total])
    if calibration is None or calibration.memory_error is None:
        calibration = replace(calibration or Calibration(), memory_error=UNTESTED_ERROR)
    low, high = interval(device, calibration)
    limit = limit_gib(node)
    firm = device - (1.0 - value(calibration, "firm_gap")) * stage.reserved_gap
    reserved = stage.total - stage.context
    return MemoryEstimate(
        allocated_gib=reserved - stage.reserved_gap,
        reserved_gib=reserved,
        device_gib=stage.total,
        low_gib=float(low[0]),
        high_gib=float(high[0]),
        limit_gib=limit,
        oom_probability=None if limit is None else float(oom_probability(firm, limit, calibration)[0]),
        peak_phase=phase,
        stages=(stage,),
        not_modelled=(
            "loading: a checkpoint may stand in memory beside the model",
            "gathering weights when a checkpoint is saved",
            "batches of unequal length",
        ),
    )


def _check(model: ModelShape, job: FineTune) -> None:
    for name in ("gpus", "micro_batch_size", "seq_length", "lora_rank"):
        if getattr(job, name) < 1:
            raise UserError(f"{name} is {getattr(job, name)}.", "The smallest is 1.")
    if job.method != "full":
        for target in job.lora_targets:
            if target not in ALL_TARGETS:
                raise unknown_name("LoRA target", target, ALL_TARGETS)
        if not job.lora_targets:
            raise UserError("No LoRA target is named.", f"Name some of {', '.join(ALL_TARGETS)}.")
    if model.moe and job.method == "qlora":
        raise UserError(
            f"{model.id} has experts, whose weights bitsandbytes does not quantise.",
            "Use LoRA or all weights.",
        )


def _target_sizes(model: ModelShape, job: FineTune) -> list[tuple[int, int]]:
    """Input and output width of each adapted matrix of a layer; a plain MLP has no gate."""
    hidden, query = model.hidden, model.heads * model.head_size
    keys = model.kv_heads * model.head_size
    sizes = {
        "q_proj": (hidden, query),
        "k_proj": (hidden, keys),
        "v_proj": (hidden, keys),
        "o_proj": (query, hidden),
        "gate_proj": (hidden, model.ffn),
        "up_proj": (hidden, model.ffn),
        "down_proj": (model.ffn, hidden),
    }
    return [sizes[t] for t in job.lora_targets if model.gated_mlp or t != "gate_proj"]


def _states(model: ModelShape, job: FineTune) -> _States:
    total = parameters.total(model)
    if job.method == "full":
        return _all_weights(job, total, _layer_weights(model))
    adapters = adapter_parameters(model, job)
    shards = job.gpus if job.strategy == "zero3" else 1
    weights, workspace = _frozen_weights(model, job, total)
    moments = 8.0 if job.optimizer == "adamw" else 2.0
    if job.strategy == "ddp":
        # fp32 adapters, their gradients, and the reducer's copy of these when there are peers.
        trained, gradients, optimizer = 4.0 * adapters, 4.0 * adapters, moments * adapters
        buffers, in_step = (4.0 * adapters if job.gpus > 1 else 0.0), 0.0
    else:
        split = adapters / job.gpus
        trained = 2.0 * (split if job.strategy == "zero3" else adapters)
        gradients, optimizer, buffers = (
            2.0 * split,
            (4.0 + moments) * split,
            2.0 * min(REDUCE_BUCKET, adapters),
        )
        in_step = 6.0 * split
    gathered = min(weights, 2.0 * MAX_LIVE) if shards > 1 else 0.0
    return _States(weights / shards + trained, gradients, optimizer, buffers, workspace + gathered, in_step)


def _all_weights(job: FineTune, total: int, layer_weights: int) -> _States:
    """Every weight trained. Under DDP in fp32 with bf16 autocast, whose casts live through forward."""
    moments = 8.0 if job.optimizer == "adamw" else 2.0
    if job.strategy == "ddp":
        bucket = 4.0 * total if job.gpus > 1 else 0.0
        return _States(4.0 * total, 4.0 * total, moments * total, bucket, 2.0 * total, 0.0)
    share = total / job.gpus
    bucket = 2.0 * REDUCE_BUCKET
    if job.strategy == "zero2":
        return _States(2.0 * total, 2.0 * share, (4.0 + moments) * share, bucket, 0.0, 6.0 * share)
    gathered = 2.0 * min(total, MAX_LIVE) if job.gpus > 1 else 2.0 * layer_weights
    return _States(
        2.0 * share, 2.0 * share, (4.0 + moments) * share, bucket, gathered, 6.0 * min(share, MAX_LIVE)
    )


def _layer_weights(model: ModelShape) -> int:
    return parameters.layer(model, with_experts=model.moe).total


def _frozen_weights(model: ModelShape, job: FineTune, total: int) -> tuple[float, float]:
    """Bytes of the frozen model, and of the matrix that is being dequantised."""
    if job.method == "lora":
        return 2.0 * total, 0.0
    matrices = model.layers * (parameters.attention(model).sharded + parameters.mlp(model, model.ffn).sharded)
    rest = total - matrices
    largest = 2.0 * model.hidden * max(model.ffn, model.heads * model.head_size)
    return quantised_bytes_per_weight(job.double_quantisation) * matrices + 4.0 * rest, largest


def _layer(model: ModelShape, job: FineTune) -> tuple[LayerBytes, float]:
    """Activations of one layer, and bytes of logits and loss at their top (fp32 upcast, not fused)."""
    layout = Layout(
        data_parallel=job.gpus,
        zero_stage=2,
        micro_batch_size=job.micro_batch_size,
        global_batch_size=job.micro_batch_size * job.gpus,
        recompute=Recompute("full", "uniform", 1) if job.gradient_checkpointing else Recompute(),
        flash_attention=job.flash_attention,
    )
    trainer = Trainer(DEEPSPEED_HF, None, None, dropout=0.0)
    setup = make(model, trainer, job.seq_length, Fusions(), True)
    columns = build(setup, LayoutBatch.of([layout]), np.zeros(1, dtype=np.int64))
    # 16-bit logits (fp32 where the head was cast), their fp32 copy, and log-softmax.
    each = 12.0 if job.method == "qlora" else 10.0
    return layer_bytes(setup, columns), each * job.micro_batch_size * job.seq_length * model.vocab


def _adapter_inputs(model: ModelShape, job: FineTune, layers: int) -> float:
    """Inputs the adapters keep for their gradient: one of their own each, and a dropout mask."""
    if job.method == "full":
        return 0.0
    each = (4.0 if job.strategy == "ddp" else 2.0) + (1.0 if job.lora_dropout > 0 else 0.0)
    tokens = job.micro_batch_size * job.seq_length
    return layers * tokens * each * sum(i for i, _ in _target_sizes(model, job))
