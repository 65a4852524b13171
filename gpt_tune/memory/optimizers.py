"""Owns what the optimizer class DeepSpeed (or another trainer) really uses keeps and borrows, in bytes.

The class follows from precision, ZeRO stage, accumulation dtype and version as in DeepSpeed's
engine._do_optimizer_sanity_check; the bytes were read off runs on one and two H200 (DeepSpeed 0.19.8).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpt_tune.memory.columns import Bools, Columns, Floats
from gpt_tune.memory.setup import FSDP, MEGATRON_LM, Setup

# DeepSpeed defaults, elements: reduce_bucket_size, stage3_max_live_parameters, sub_group_size,
# and the all-reduce bucket of the pipeline engine (MEMORY_OPT_ALLREDUCE_SIZE).
REDUCE_BUCKET = 5e8
MAX_LIVE = 1e9
SUB_GROUP = 1e9
ENGINE_BUCKET = 5e8


@dataclass(frozen=True, slots=True)
class States:
    """Bytes on the rank. Resident: parameters, flat_gradients, optimizer (master weights and Adam).

    gradients: what backward leaves until the step; gradients_outlive_step: they are still there in the next
    step's forward pass; cleared_before_backward: each backward pass frees them first.
    bucket: communication buffer of backward; lasting_bucket: the part held from one micro batch to the next;
    steady_bucket: the part never freed. gathered: parameters of other ranks during forward and backward.
    reduction, step: borrowed at the top of these phases. at_step: gradients still held in the step.
    moments: Adam's two states, made in the first step, or 0 where they exist before it.
    contiguous: what the first step asks for in single blocks, Adam's states included.
    second_block: what a later step may need other blocks for than the first: fp32 gradients, with accumulation under
    ZeRO-1 their 16-bit copy and the 16-bit gradients too.
    reserved_at_start: the least the allocator has reserved when training begins.
    initialisation: the whole of allocated memory at its peak before step one.
    """

    parameters: Floats
    flat_gradients: Floats
    optimizer: Floats
    gradients: Floats
    gradients_outlive_step: Bools
    cleared_before_backward: Bools
    bucket: Floats
    lasting_bucket: Floats
    steady_bucket: Floats
    gathered: Floats
    reduction: Floats
    at_step: Floats
    step: Floats
    moments: Floats
    contiguous: Floats
    second_block: Floats
    reserved_at_start: Floats
    initialisation: Floats


def states(setup: Setup, c: Columns) -> States:
    """Bytes of model states for each layout."""
    if setup.trainer.name == MEGATRON_LM:
        return _megatron_lm(setup, c)
    if setup.trainer.name == FSDP:
        return _fsdp(c)
    return _deepspeed(setup, c)


def _sharded(c: Columns, bytes_each: float | Floats) -> Floats:
    """Bytes of a state spread over the ranks that share it."""
    return bytes_each * (c.dense / c.shards + c.experts / c.expert_shards)


def uses_bf16_optimizer(setup: Setup, c: Columns) -> tuple[Bools, Floats]:
    """Whether the class is BF16_Optimizer, and bytes of an accumulated gradient element."""
    asked = setup.trainer.gradient_accumulation_dtype
    default_fp32 = setup.accumulates_fp32_without_zero & (c.zero == 0)
    fp32 = c.bf16 & ((asked == "fp32") | ((asked is None) & default_fp32))
    bf16 = c.bf16 & ~c.fp32 & (((c.zero == 0) & (c.engine | fp32)) | ((c.zero == 1) & fp32))
    return bf16, np.where(fp32 | c.fp32, 4.0, 2.0)


def _deepspeed(setup: Setup, c: Columns) -> States:
    w, size = c.width, c.parameters
    bf16_class, accumulated = uses_bf16_optimizer(setup, c)
    partitioned = ~bf16_class & (c.zero >= 1)
    plain = ~bf16_class & (c.zero == 0)
    three = c.zero == 3
    share = _sharded(c, 1.0)
    resident_share = np.where(three, share, size)
    optimizer = np.where(plain, 12.0 * size, 12.0 * share)
    flat = np.where(bf16_class, accumulated * size, np.where(three, w * share, 0.0))
    extra = np.where(partitioned & (accumulated > w), accumulated - w, 0.0)
    kept = np.where((c.zero >= 2) & ~three, share, np.where(three, 0.0, size))
    gradients = kept * (w + extra)
    # Without a bucket of its own, what is reduced together is copied into one block.
    copies = (c.zero == 1) & (not setup.zero1_bucket)
    at_reduction = np.where(
        partitioned, w * np.where(copies, np.minimum(size, REDUCE_BUCKET), REDUCE_BUCKET), 0.0
    )
    bucket = np.where(copies | (c.engine & ~c.last & setup.bucket_in_last_stage_only), 0.0, at_reduction)
    reduction = _reduction(c, bf16_class, accumulated, share)
    sub_group = np.minimum(share, SUB_GROUP)
    step = np.where(
        bf16_class,
        np.where(accumulated > 2.0, 0.0, 4.0 * share),
        np.where(plain, 8.0 * size, np.where(three, 6.0 * sub_group, 6.0 * share)),
    )
    at_step = np.where(partitioned & ~three, w * share, gradients)
    # With accumulation, ZeRO-1's gradients stay through later micro batches, whose activations take what was cached:
    # a run of 2.7B on one H200 reserved 19.7 GiB more in its second step (4 + 2 + 2 bytes a parameter are 20.7).
    stay = partitioned & (c.zero == 1) & (c.micro_batches > 1) & (not setup.adam_at_start)
    again = np.where(stay, w * share + w * size, 0.0)
    start = np.where(
        bf16_class,
        w * size + flat + 4.0 * share,
        np.where(plain, 18.0 * size, np.where(three, 8.0 * share, w * size + 8.0 * share)),
    )
    return States(
        parameters=w * resident_share,
        flat_gradients=flat,
        optimizer=optimizer,
        gradients=gradients,
        gradients_outlive_step=bf16_class & setup.old_gradient_clearing,
        cleared_before_backward=bf16_class & setup.old_gradient_clearing,
        bucket=bucket,
        lasting_bucket=np.where(c.engine, bucket, 0.0),
        steady_bucket=np.where(three, bucket, 0.0),
        gathered=np.where(three & (c.shards > 1), w * np.minimum(size, MAX_LIVE), 0.0),
        reduction=reduction + (at_reduction - bucket),
        at_step=at_step,
        step=step,
        moments=np.where(plain | setup.adam_at_start, 0.0, 8.0 * share),
        contiguous=_contiguous(
            setup, c, bf16_class, plain, share, step, np.where(accumulated > w, reduction, 0.0)
        ),
        second_block=np.where(plain | three | (step == 0), 0.0, 4.0 * share + again),
        # Flattening weights into new blocks leaves the old ones cached (measured: 24 bytes a parameter).
        reserved_at_start=np.where(plain, 24.0 * size, start),
        initialisation=start,
    )


def _reduction(c: Columns, bf16_class: Bools, accumulated: Floats, share: Floats) -> Floats:
    """Bytes that the reduction copies gradients into. share: parameters of a rank's share of the states."""
    w, size = c.width, c.parameters
    copied = np.where((accumulated > w) | (size <= ENGINE_BUCKET), w * size, 0.0)
    plain = c.zero == 0
    split = np.where(c.zero == 3, 0.0, w * share)
    return np.where(bf16_class, copied, np.where(plain, np.minimum(w * size, ENGINE_BUCKET * w), split))


def _contiguous(
    setup: Setup, c: Columns, bf16_class: Bools, plain: Bools, share: Floats, step: Floats, copies: Floats
) -> Floats:
    """Bytes the first step asks for in single blocks: Adam's states, fp32 gradients, and reduction copies."""
    with_copies = step + np.where(bf16_class, copies, 0.0)
    if setup.adam_at_start:
        # The dry step's fp32 gradients have left a block that serves again.
        zero = np.where(bf16_class, with_copies, step - 4.0 * share)
        return np.where(plain, np.where(c.engine, 1.0, 0.5) * step, zero)
    return np.where(plain, np.where(c.engine, 1.0, 0.5) * step, 8.0 * share + with_copies)


def _megatron_lm(setup: Setup, c: Columns) -> States:
    """Megatron-LM: contiguous gradient buffer, fp32 unless asked otherwise; ZeRO-1 is its distributed optimizer."""
    grad = 2.0 if setup.trainer.gradient_accumulation_dtype == "bf16" else 4.0
    size, zero = c.parameters, np.zeros_like(c.parameters)
    never = np.zeros(len(size), dtype=np.bool_)
    share = np.where(c.zero >= 1, _sharded(c, 1.0), size)
    return States(
        parameters=c.width * size,
        flat_gradients=grad * size,
        optimizer=12.0 * share,
        gradients=zero,
        gradients_outlive_step=never,
        cleared_before_backward=never,
        bucket=zero,
        lasting_bucket=zero,
        steady_bucket=zero,
        gathered=zero,
        reduction=zero,
        at_step=zero,
        step=zero,
        moments=8.0 * share,
        contiguous=8.0 * share,
        second_block=zero,
        reserved_at_start=zero,
        initialisation=(c.width + grad) * size + 4.0 * share,
    )


def _fsdp(c: Columns) -> States:
    """FSDP with mixed precision: fp32 shards of weights, gradients and Adam; gathered 16-bit units while used."""
    size = c.parameters
    share = np.where(c.zero >= 3, _sharded(c, 1.0), size)
    layer = np.maximum(size - c.tables, 0.0) / np.maximum(c.layers, 1)
    zero = np.zeros_like(size)
    never = np.zeros(len(size), dtype=np.bool_)
    return States(
        parameters=4.0 * share,
        flat_gradients=zero,
        optimizer=8.0 * share,
        gradients=4.0 * share,
        gradients_outlive_step=never,
        cleared_before_backward=never,
        bucket=zero,
        lasting_bucket=zero,
        steady_bucket=zero,
        # The unit in use and the one being fetched, and the root unit (embeddings and head).
        gathered=np.where(c.zero >= 3, c.width * (2.0 * layer + c.tables), 0.0),
        reduction=c.width * layer,
        at_step=4.0 * share,
        step=zero,
        moments=8.0 * share,
        contiguous=8.0 * share,
        second_block=zero,
        reserved_at_start=zero,
        initialisation=4.0 * share,
    )
