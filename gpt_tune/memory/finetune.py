"""Owns the memory of fine-tuning: all weights, LoRA, or QLoRA, under DDP, ZeRO-2 or ZeRO-3.

The model code is Hugging Face's (transformers, peft, bitsandbytes), counted tensor by tensor and checked against
22 runs on one H200 (tests/data/memory/finetune_h200.json). What decides:
- logits: 16-bit, in fp32, their log-softmax, and in backward two fp32 gradients: 10 and 12 bytes a word and token;
- `prepare_model_for_kbit_training` turns what is not quantised into fp32 (DDP): tables take 4 bytes, hidden states
  flow in fp32, and autocast keeps a 16-bit copy of the output matrix. DeepSpeed turns all of it back to bf16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpt_tune.calibration.constants import Calibration
from gpt_tune.errors import UserError, unknown_name
from gpt_tune.hardware.parts import Node
from gpt_tune.memory.constants import value
from gpt_tune.memory.types import MemoryEstimate, StageMemory
from gpt_tune.memory.uncertainty import ERROR, interval, limit_gib, oom_probability
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
# Standard deviation of log(measured / predicted) device memory to assume: 0.04 on one H200 and on two, but nothing was
# measured on more, and the QLoRA case's claims for 24 GB cards stand 20-40 % above what the same job took there.
UNTESTED_ERROR = 0.10
SCOPE = "finetune"  # in front of a calibration's memory constants that are for these jobs alone
# Bytes a logit: 16-bit, fp32 and log-softmax in forward; log-softmax and two fp32 gradients in backward.
LOGIT_FORWARD, LOGIT_BACKWARD = 10.0, 12.0
# transformers' default for per_device_eval_batch_size, and how the estimate says that it leaves larger ones out.
EVAL_BATCH = 8
EVALUATION = "evaluation in larger batches than training"


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
    gradient_accumulation_steps: int = 2
    eval_batch_size: int = EVAL_BATCH


@dataclass(frozen=True, slots=True)
class Tuning:
    """What memory and time of a fine-tuning job rest on besides its layout; the defaults are what is assumed of a
    job that nothing more is known of.

    optimizer, deepspeed_optimizer: under DDP, and under ZeRO where the program takes another one; None leaves the
    method's usual one (8-bit paged Adam for adapters, AdamW for all weights). eval_batch_size: None evaluates in
    batches of the micro batch.
    """

    lora_rank: int = 16
    lora_dropout: float = 0.05
    lora_targets: tuple[str, ...] = ALL_TARGETS
    double_quantisation: bool = True
    optimizer: Optimizer | None = None
    deepspeed_optimizer: Optimizer | None = None
    eval_batch_size: int | None = EVAL_BATCH

    def optimizer_of(self, method: Method, strategy: Strategy) -> Optimizer:
        """The optimizer that a job really runs."""
        asked = self.optimizer if strategy == "ddp" else self.deepspeed_optimizer or self.optimizer
        return asked or ("adamw" if method == "full" else "paged_adamw_8bit")


@dataclass(frozen=True, slots=True)
class _States:
    """Bytes on one GPU. transient: borrowed in forward and backward; casts: 16-bit copies of fp32 weights that
    autocast holds through forward; in_step: borrowed in the optimizer step; bucket: more of the reduction's bucket
    while gradients of layers are made."""

    weights: float
    gradients: float
    optimizer: float
    buffers: float
    transient: float
    casts: float
    in_step: float
    bucket: float = 0.0


@dataclass(frozen=True, slots=True)
class _Activations:
    """Bytes of one micro batch: what one layer keeps, its input, what its backward borrows, one byte a logit."""

    layer: float
    input: float
    backward: float
    logits: float
    tail: float


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
    s, x = _states(model, job), _activations(model, job)
    kept = model.layers * (x.input if job.gradient_checkpointing else x.layer) + x.tail
    # Gradients of earlier micro batches stand by from the second one on.
    standing = s.gradients if job.gradient_accumulation_steps > 1 or job.strategy == "zero3" else 0.0
    head = 2.0 * model.hidden * model.vocab if s.casts or _wide(job) else 0.0
    again = x.layer if job.gradient_checkpointing else 0.0
    # Each moment: gradients, activations, logits, transient.
    moments = (
        (standing, kept, LOGIT_FORWARD * x.logits, s.transient + max(s.casts, head)),
        (standing, kept, LOGIT_BACKWARD * x.logits, s.transient + head),
        (s.gradients, kept + again, 0.0, s.transient + x.backward + s.bucket),
        (s.gradients, 0.0, 0.0, s.in_step),
    )
    top = max(range(len(moments)), key=lambda i: sum(moments[i]))
    gradients, activations, logits, transient = moments[top]
    # What the optimizer step borrows is asked for in blocks that no activation has left behind (measured).
    gap = value(calibration, "finetune_gap") * 4.0 * x.logits + s.in_step
    context = _context(job, calibration)
    stage = _stage(context, s.weights, gradients, s.optimizer, activations, logits, s.buffers, transient, gap)
    phase = "optimizer" if top == len(moments) - 1 else "forward_backward"
    loading = _loading(model, job, context)
    if loading is not None and loading.total > stage.total:
        stage, phase = loading, "initialisation"
    return _estimate(node, stage, phase, calibration, _not_modelled(job, x))


def _loading(model: ModelShape, job: FineTune, context: float) -> StageMemory | None:
    """A GPU while a 4-bit model loads for ZeRO-3: transformers splits 16-bit weights while it reads them, but quantised
    ones stand whole on each GPU until DeepSpeed begins (measured on two H200). None where training always holds more.
    """
    if job.method != "qlora" or job.strategy != "zero3":
        return None
    weights, largest = _frozen_weights(model, job, parameters.total(model))
    return _stage(context, weights, 0.0, 0.0, 0.0, 0.0, 0.0, largest, 0.0)


def _stage(context: float, *parts: float) -> StageMemory:
    """One GPU. parts: bytes of parameters, gradients, optimizer, activations, logits, buffers, transient and gap."""
    weights, gradients, optimizer, activations, logits, buffers, transient, gap = (p / GIB for p in parts)
    allocated = weights + gradients + optimizer + activations + logits + buffers + transient
    total = allocated + gap + context
    return StageMemory(
        0, weights, gradients, optimizer, activations, logits, buffers, transient, gap, context, total
    )


def _context(job: FineTune, calibration: Calibration | None) -> float:
    """GiB outside the allocator. DeepSpeed opens a communicator on a single GPU too."""
    peers, engine = job.gpus > 1, job.strategy != "ddp"
    communicator = "communicator_gib" if peers else "idle_communicator_gib"
    opened = value(calibration, communicator) if peers or engine else 0.0
    return value(calibration, "context_gib") + opened + value(calibration, "cluster_gib")


def _not_modelled(job: FineTune, x: _Activations) -> tuple[str, ...]:
    size = job.eval_batch_size
    evaluation = LOGIT_FORWARD * x.logits * size / job.micro_batch_size / GIB
    default = "the Hugging Face default of " if size == EVAL_BATCH else ""
    larger = f"{EVALUATION}: {default}{size} needs {evaluation:.0f} GiB for logits alone"
    return (
        *((larger,) if size > job.micro_batch_size else ()),
        "loading: a checkpoint may stand in memory beside the model",
        "gathering weights when a checkpoint is saved",
        "batches of unequal length, which leave holes in reserved memory",
    )


def _estimate(
    node: Node, stage: StageMemory, phase: str, calibration: Calibration | None, missing: tuple[str, ...]
) -> MemoryEstimate:
    device = np.array([stage.total])
    known = {} if calibration is None else calibration.memory
    calibration = Calibration(memory={f"{SCOPE}.{ERROR}": UNTESTED_ERROR, **known})
    low, high = interval(device, np.zeros_like(device), calibration, SCOPE)
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
        oom_probability=None if limit is None else float(oom_probability(firm, limit, calibration, SCOPE)[0]),
        peak_phase=phase,
        stages=(stage,),
        not_modelled=missing,
    )


def _check(model: ModelShape, job: FineTune) -> None:
    for name in ("gpus", "micro_batch_size", "seq_length", "lora_rank", "gradient_accumulation_steps"):
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


def _wide(job: FineTune) -> bool:
    """Whether hidden states flow in fp32: fp32 tables in front of 4-bit layers, or fp32 weights trained."""
    return job.strategy == "ddp" and job.method != "lora"


def _states(model: ModelShape, job: FineTune) -> _States:
    total = parameters.total(model)
    if job.method == "full":
        return _all_weights(job, total, _layer_weights(model))
    adapters = adapter_parameters(model, job)
    weights, workspace = _frozen_weights(model, job, total)
    moments = 8.0 if job.optimizer == "adamw" else 2.0
    if job.strategy == "ddp":
        # fp32 adapters, their gradients, and the reducer's copy of these when there are peers.
        buffers = 4.0 * adapters if job.gpus > 1 else 0.0
        return _States(
            weights + 4.0 * adapters, 4.0 * adapters, moments * adapters, buffers, workspace, 0.0, 0.0
        )
    split = adapters / job.gpus
    whole = job.strategy == "zero2"
    held = 2.0 * (adapters if whole else split) + weights / (1 if whole else job.gpus)
    gathered = min(weights, 2.0 * MAX_LIVE) if job.gpus > 1 and not whole else 0.0
    # ZeRO-3 makes its whole bucket at the start, ZeRO-2 with the first gradient, and gives it back (both measured).
    bucket = 2.0 * (min(REDUCE_BUCKET, adapters) if whole else REDUCE_BUCKET)
    more = 2.0 * REDUCE_BUCKET - bucket if job.gpus > 1 else 0.0
    return _States(
        held,
        2.0 * split,
        (4.0 + moments) * split,
        bucket,
        workspace + gathered,
        0.0,
        _in_step(job) * split,
        more,
    )


def _in_step(job: FineTune) -> float:
    """Bytes a parameter borrowed in a ZeRO step: fp32 gradients, and torch's unfused Adam one more copy."""
    return 8.0 if job.optimizer == "adamw" else 4.0


def _all_weights(job: FineTune, total: int, layer_weights: int) -> _States:
    """Every weight trained. Under DDP in fp32 with bf16 autocast, whose casts live through forward."""
    moments = 8.0 if job.optimizer == "adamw" else 2.0
    if job.strategy == "ddp":
        bucket = 4.0 * total if job.gpus > 1 else 0.0
        return _States(4.0 * total, 4.0 * total, moments * total, bucket, 0.0, 2.0 * total, 0.0)
    share = total / job.gpus
    bucket = 2.0 * REDUCE_BUCKET
    step = _in_step(job)
    if job.strategy == "zero2":
        return _States(2.0 * total, 2.0 * share, (4.0 + moments) * share, bucket, 0.0, 0.0, step * share)
    gathered = 2.0 * min(total, MAX_LIVE) if job.gpus > 1 else 2.0 * layer_weights
    return _States(
        2.0 * share,
        2.0 * share,
        (4.0 + moments) * share,
        bucket,
        gathered,
        0.0,
        step * min(share, MAX_LIVE),
    )


def _layer_weights(model: ModelShape) -> int:
    return parameters.layer(model, with_experts=model.moe).total


def _frozen_weights(model: ModelShape, job: FineTune, total: int) -> tuple[float, float]:
    """Bytes of the frozen model, and of the matrix that is being dequantised."""
    if job.method == "lora":
        return 2.0 * total, 0.0
    matrices = model.layers * (parameters.attention(model).sharded + parameters.mlp(model, model.ffn).sharded)
    largest = 2.0 * model.hidden * max(model.ffn, model.heads * model.head_size)
    each = 4.0 if _wide(job) else 2.0
    quantised = quantised_bytes_per_weight(job.double_quantisation)
    return quantised * matrices + each * (total - matrices), largest


def _activations(model: ModelShape, job: FineTune) -> _Activations:
    tokens = float(job.micro_batch_size * job.seq_length)
    wide = 4.0 if _wide(job) else 2.0
    keep = _attention_bytes(model, job, wide) + _mlp_bytes(model, job, wide) + _adapter_bytes(model, job)
    return _Activations(
        layer=tokens * keep,
        input=tokens * wide * model.hidden,
        # Gradients of gate, up and product, and of the hidden states on both sides of the MLP.
        backward=tokens * wide * (3.0 * _mlp_width(model) + 2.0 * model.hidden),
        logits=tokens * model.vocab,
        # The last norm: its input in fp32 and its result.
        tail=tokens * (4.0 + wide) * model.hidden,
    )


def _mlp_width(model: ModelShape) -> float:
    if not model.moe:
        return float(model.ffn)
    return float(model.experts_per_token * model.expert_ffn + model.shared_expert_ffn)


def _attention_bytes(model: ModelShape, job: FineTune, wide: float) -> float:
    """Bytes a token that norms and attention of one layer keep.

    A frozen norm keeps its input in fp32; a trained one its result too. sdpa keeps 16-bit queries, keys, values and
    its output. Trained matrices keep their inputs: under autocast a copy each, otherwise one that they share.
    """
    query, keys = model.heads * model.head_size, model.kv_heads * model.head_size
    trained = job.method == "full"
    norm = (4.0 if model.norm == "rmsnorm" else wide) + (wide if trained else 0.0)
    kept = 2.0 * norm * model.hidden + 4.0 * query + 4.0 * keys
    if model.qk_norm:
        kept += (6.0 if trained else 4.0) * (query + keys)
    if trained:
        kept += (10.0 if _wide(job) else 4.0) * model.hidden
    if not job.flash_attention:
        # Scores in fp32 and as 16 bits.
        kept += 6.0 * model.heads * job.seq_length
    return kept


def _mlp_bytes(model: ModelShape, job: FineTune, wide: float) -> float:
    """Bytes a token that the MLP keeps: gate, its activation and up, and the product where down is trained."""
    width = _mlp_width(model)
    if job.method == "full":
        return 2.0 * (4.0 if model.gated_mlp else 2.0) * width
    return wide * (3.0 if model.gated_mlp else 1.0) * width


def _adapter_bytes(model: ModelShape, job: FineTune) -> float:
    """Bytes a token that adapters keep: a 16-bit input of their own each, and a dropout mask."""
    if job.method == "full":
        return 0.0
    each = 2.0 + (1.0 if job.lora_dropout > 0 else 0.0)
    return each * sum(i for i, _ in _target_sizes(model, job))
