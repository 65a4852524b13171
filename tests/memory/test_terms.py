"""Tests what every memory estimate must satisfy: terms that add up, and orders that physics demands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_tune import memory
from gpt_tune.calibration.constants import Calibration
from gpt_tune.errors import UserError
from gpt_tune.layouts.layout import Fusions, Layout, Recompute, Trainer
from gpt_tune.memory.types import PEAK_PHASES, MemoryEstimate, StageMemory
from gpt_tune.memory.uncertainty import surprise_of
from gpt_tune.models import parameters
from gpt_tune.models.shape import ModelShape
from tests.memory import support

ALLOCATED = ("parameters", "gradients", "optimizer", "activations", "logits", "buffers", "transient")
MODELS = (support.gpt(), support.llama(), support.moe(), support.gpt(layers=7, hidden=1024, heads=8))


def _estimate(
    changes: Mapping[str, Any],
    model: ModelShape | None = None,
    trainer: Trainer | None = None,
    seq: int = 2048,
) -> MemoryEstimate:
    return memory.estimate(
        model or support.gpt(), support.node(), trainer or Trainer(), support.layout(**changes), seq
    )


def _allocated(stage: StageMemory) -> float:
    return float(sum(getattr(stage, name) for name in ALLOCATED))


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(support.TRAINERS),
    support.layouts(),
    st.sampled_from((128, 2048, 4096)),
)
def test_terms_are_not_negative_and_add_up(
    model: ModelShape, trainer: Trainer, layout: Layout, seq: int
) -> None:
    e = memory.estimate(model, support.node(), trainer, layout, seq)
    assert len(e.stages) == layout.pipeline_parallel
    for stage in e.stages:
        assert all(getattr(stage, f.name) >= -1e-9 for f in fields(stage)), stage
        assert _allocated(stage) + stage.reserved_gap + stage.context == pytest.approx(stage.total)
    worst = max(e.stages, key=lambda s: s.total)
    assert e.device_gib == worst.total
    assert e.allocated_gib == pytest.approx(_allocated(worst))
    assert e.reserved_gib == pytest.approx(_allocated(worst) + worst.reserved_gap)
    assert e.allocated_gib <= e.reserved_gib <= e.device_gib
    assert e.low_gib < e.device_gib < e.high_gib
    assert e.oom_probability is not None
    assert 0.0 <= e.oom_probability <= 1.0
    assert e.peak_phase in PEAK_PHASES


@settings(max_examples=100, deadline=None)
@given(support.layouts(), st.sampled_from(support.TRAINERS), st.sampled_from(MODELS))
def test_more_tensor_parallel_never_raises_parameters(
    layout: Layout, trainer: Trainer, model: ModelShape
) -> None:
    node = support.node()
    parameters = [
        max(
            s.parameters
            for s in memory.estimate(model, node, trainer, replace(layout, tensor_parallel=t), 2048).stages
        )
        for t in (1, 2, 4, 8)
    ]
    # Padding of the vocabulary to 128 t rows may add a little, never a doubling's worth.
    assert all(after <= before for before, after in pairwise(parameters))


@pytest.mark.parametrize("data", [2, 8, 64])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_zero_stages_are_ordered(data: int, precision: str) -> None:
    """States shrink, or stay, with every ZeRO stage."""
    states = []
    for zero in (0, 1, 2, 3):
        e = _estimate(
            {
                "zero_stage": zero,
                "data_parallel": data,
                "gradient_accumulation_steps": 4,
                "precision": precision,
            },
            support.gpt(layers=32, hidden=4096, heads=32),
        )
        s = e.stages[0]
        states.append(s.parameters + s.gradients + s.optimizer)
    assert states == sorted(states, reverse=True)
    assert states[3] < states[0]


@pytest.mark.parametrize("trainer", support.TRAINERS[:7], ids=str)
def test_more_data_parallel_never_raises_memory_of_states(trainer: Trainer) -> None:
    optimizer = [
        _estimate({"zero_stage": 1, "data_parallel": d, "gradient_accumulation_steps": 2}, trainer=trainer)
        .stages[0]
        .optimizer
        for d in (1, 2, 4, 8)
    ]
    assert optimizer == sorted(optimizer, reverse=True)


def test_recompute_saves_activations_in_order() -> None:
    full, selective, none = (
        _estimate({"flash_attention": False, "micro_batch_size": 4, "recompute": r}).allocated_gib
        for r in (Recompute("full", "uniform", 1), Recompute("selective"), Recompute())
    )
    assert full < selective < none


def test_flash_attention_drops_the_scores_and_their_buffer() -> None:
    with_flash, without = (
        _estimate({"micro_batch_size": 4, "flash_attention": f}).stages[0] for f in (True, False)
    )
    scores = 4 * 16 * 2048**2
    assert without.buffers - with_flash.buffers == pytest.approx(2 * scores / 2**30)
    # Five bytes a score in each of 24 layers; flash keeps a copy of the context and a log-sum instead.
    saved = without.activations - with_flash.activations
    assert saved == pytest.approx(
        24 * (5 * scores - 2 * 4 * 2048 * 2048 - 4 * 4 * 2048 * 16) / 2**30, rel=1e-6
    )


def test_unfused_softmax_keeps_seven_bytes_a_score() -> None:
    fused, unfused = (
        _estimate({"flash_attention": False, "fusions": Fusions(masked_softmax=f)}).stages[0].activations
        for f in (True, False)
    )
    assert unfused - fused == pytest.approx(24 * 2 * 16 * 2048**2 / 2**30)


def test_a_gated_mlp_that_is_not_fused_keeps_one_tensor_more() -> None:
    """nanotron multiplies silu(gate) with up as two operations; Megatron-LM's kernel keeps gate, up and product."""
    model = support.llama(layers=2)
    fused, apart = (
        _estimate({"micro_batch_size": 2, "data_parallel": 8, "zero_stage": 1}, model, trainer)
        .stages[0]
        .activations
        for trainer in (Trainer("megatron-lm", None, None), Trainer("megatron-lm", "nanotron", None))
    )
    assert apart - fused == pytest.approx(2 * 2 * 2 * 2048 * model.ffn / 2**30)


def test_the_first_stage_holds_most_micro_batches_and_the_last_the_logits() -> None:
    e = _estimate({"pipeline_parallel": 4, "gradient_accumulation_steps": 16})
    assert e.stages[0].activations > e.stages[1].activations > e.stages[2].activations
    assert e.stages[3].logits > 0
    assert all(s.logits == 0 for s in e.stages[:3])


def test_fewer_micro_batches_than_stages_are_all_that_is_in_flight() -> None:
    few, many = (
        _estimate({"pipeline_parallel": 8, "gradient_accumulation_steps": m}).stages[0].activations
        for m in (2, 32)
    )
    assert many == pytest.approx(4 * few)


def test_interleaving_holds_more_than_plain_1f1b() -> None:
    trainer = Trainer("megatron-lm", None, None)
    plain, interleaved = (
        _estimate(
            {
                "pipeline_parallel": 4,
                "virtual_pipeline": v,
                "gradient_accumulation_steps": 32,
                "zero_stage": 1,
            },
            trainer=trainer,
        )
        .stages[0]
        .activations
        for v in (1, 2)
    )
    # Stage 0 of 4 with 2 chunks: 2*3 + 4 + 1 = 11 chunks of half a stage, against 4 whole ones.
    assert interleaved / plain == pytest.approx(5.5 / 4)


def test_sequence_parallel_and_context_parallel_divide_activations() -> None:
    base = {"tensor_parallel": 4, "micro_batch_size": 2}
    assert (
        _estimate(base | {"sequence_parallel": True}).stages[0].activations
        < _estimate(base).stages[0].activations
    )
    trainer = Trainer("megatron-lm", None, None)
    one, two = (
        _estimate(
            {"context_parallel": c, "context_method": "ring" if c > 1 else None, "zero_stage": 1},
            support.llama(positions="none"),
            trainer,
        )
        .stages[0]
        .activations
        for c in (1, 2)
    )
    assert two == pytest.approx(one / 2)


def test_chunks_with_the_embedding_are_not_recomputed() -> None:
    """Interval 4: the first chunk holds two specs before the layers, and two layers that stay whole."""
    by_chunk = {
        n: _estimate({"micro_batch_size": 4, "recompute": Recompute("full", "uniform", n)}) for n in (2, 4)
    }
    whole = _estimate({"micro_batch_size": 4}).stages[0].activations / 24
    assert by_chunk[4].stages[0].activations > 1.5 * whole
    assert by_chunk[2].stages[0].activations < by_chunk[4].stages[0].activations


def test_the_pipeline_engine_ignores_block_recompute() -> None:
    """gpt_model.py sets its interval for the uniform method only; without the engine block works."""
    changes: dict[str, Any] = {"micro_batch_size": 4}
    block = changes | {"recompute": Recompute("full", "block", 8)}
    assert _estimate(block).allocated_gib == _estimate(changes).allocated_gib
    without = {"zero_stage": 2}
    assert _estimate(block | without).allocated_gib < _estimate(changes | without).allocated_gib


def test_block_recompute_keeps_the_other_layers_whole() -> None:
    trainer = Trainer("megatron-lm", None, None)
    kept = [
        _estimate({"zero_stage": 1, "micro_batch_size": 4, "recompute": r}, trainer=trainer).allocated_gib
        for r in (
            Recompute(),
            Recompute("full", "block", 6),
            Recompute("full", "block", 18),
            Recompute("full", "uniform", 1),
        )
    ]
    assert kept == sorted(kept, reverse=True)
    assert len(set(kept)) == 4


def test_unknown_gpu_memory_is_unknown_risk() -> None:
    node = support.node(None)
    e = memory.estimate(support.gpt(), node, Trainer(), support.layout(), 2048)
    assert e.limit_gib is None
    assert e.oom_probability is None


def test_oom_probability_rises_with_memory() -> None:
    chances = [_estimate({"micro_batch_size": b}).oom_probability for b in (1, 8, 16, 64)]
    assert chances == sorted(chances, key=lambda x: x or 0.0)
    assert chances[0] == pytest.approx(0.0, abs=1e-6)
    assert chances[-1] == pytest.approx(1.0, abs=1e-6)


def test_a_calibration_moves_device_memory_and_narrows_the_interval() -> None:
    plain = _estimate({})
    moved = memory.estimate(
        support.gpt(),
        support.node(),
        Trainer(),
        support.layout(),
        2048,
        Calibration(memory={"cluster_gib": 3.0}, memory_error=0.03),
    )
    assert moved.allocated_gib == plain.allocated_gib
    assert moved.device_gib == pytest.approx(plain.device_gib + 3.0)
    assert moved.high_gib / moved.low_gib < plain.high_gib / plain.low_gib


def test_a_trainer_specific_constant_wins() -> None:
    calibration = Calibration(memory={"cluster_gib": 3.0, "megatron-lm.cluster_gib": 1.0})

    def device(trainer: Trainer, c: Calibration | None) -> float:
        return memory.estimate(support.gpt(), support.node(), trainer, support.layout(), 2048, c).device_gib

    mine, other = Trainer("megatron-lm", None, None), Trainer()
    assert device(mine, calibration) - device(mine, None) == pytest.approx(1.0)
    assert device(other, calibration) - device(other, None) == pytest.approx(3.0)


@pytest.mark.parametrize("seq", [0, -1])
def test_a_sequence_without_tokens_is_refused(seq: int) -> None:
    with pytest.raises(UserError, match="sequence length"):
        _estimate({}, seq=seq)


def test_old_pytorch_holds_all_reduced_tensors_which_grow_with_the_micro_batch() -> None:
    old, new = Trainer(deepspeed="0.17.2"), Trainer(deepspeed="0.17.3")

    def extra(tensor: int, size: int) -> float:
        changes = {"tensor_parallel": tensor, "micro_batch_size": size}
        return _estimate(changes, trainer=old).reserved_gib - _estimate(changes, trainer=new).reserved_gib

    # 16 copies of tokens x hidden in 16 bits, whatever tensor parallelism divides; none without all-reduces.
    copy = 2 * 2048 * support.gpt().hidden / 2**30
    assert extra(2, 1) == pytest.approx(16 * copy)
    assert extra(2, 4) == pytest.approx(4 * extra(2, 1))
    assert extra(1, 4) == 0.0


@pytest.mark.parametrize(
    ("changes", "has"),
    [
        ({"zero_stage": 1}, True),
        ({"zero_stage": 1, "gradient_accumulation_steps": 4}, True),
        ({"zero_stage": 0}, True),
        # Gradients added up in fp32 need no fp32 copy.
        ({"zero_stage": 0, "dtype": "fp32"}, False),
        ({"zero_stage": 0, "precision": "fp16"}, False),
        ({"zero_stage": 3}, False),
    ],
)
def test_the_upper_bound_allows_a_second_block_of_fp32_gradients(changes: dict[str, Any], has: bool) -> None:
    trainer = Trainer(gradient_accumulation_dtype=changes.get("dtype", "bf16"))
    surprise = surprise_of(_estimate({k: v for k, v in changes.items() if k != "dtype"}, trainer=trainer))
    share = parameters.total(support.gpt()) * 4 / 2**30
    # Under ZeRO-1 with accumulation the 16-bit gradients and their copy may need new blocks too.
    blocks = 2 if "gradient_accumulation_steps" in changes else 1
    assert (surprise > 0.5 * share) is has
    assert surprise < 1.1 * blocks * share


def test_the_interval_holds_the_run_whose_second_step_reserved_more() -> None:
    """2.7B on one H200, ZeRO-1, micro batch 4 twice a step: 85.0 GiB reserved after step one, 107.9 on the device."""
    changes = {
        "zero_stage": 1,
        "micro_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "flash_attention": True,
    }
    e = _estimate(changes, support.gpt(layers=32, hidden=2560, heads=32))
    assert e.device_gib < 107.9 < e.high_gib


def test_a_pipeline_holds_the_output_it_reassembles_and_its_gradient() -> None:
    """Slices of a stage's output travel; DeepSpeed puts output and gradient together again for backward."""
    full = Recompute("full", "uniform", 1)
    base = {
        "pipeline_parallel": 4,
        "gradient_accumulation_steps": 16,
        "recompute": full,
        "micro_batch_size": 2,
    }

    def transient(tensor: int, trainer: Trainer) -> float:
        e = _estimate(base | {"tensor_parallel": tensor}, support.gpt(layers=8), trainer)
        return e.stages[1].transient

    # Wide enough tensor parallelism leaves only what it does not divide: two copies more than without a pipeline.
    copy = 2 * 2 * 2048 * 2048 / 2**30
    plain = Trainer("megatron-deepspeed", None, "0.19.8", dropout=0.0)
    one = _estimate(base | {"tensor_parallel": 8, "pipeline_parallel": 1}, support.gpt(layers=2), plain)
    assert transient(8, plain) - one.stages[0].transient == pytest.approx(2 * copy, rel=1e-6)


def test_checkpoints_in_flight_cut_up_the_cache_of_a_pipeline() -> None:
    """A fifth of what waits; nothing without a pipeline or without full recompute."""
    full = Recompute("full", "uniform", 1)

    def added(stages: int, recompute: Recompute = full) -> float:
        layout = support.layout(
            pipeline_parallel=stages,
            gradient_accumulation_steps=64,
            micro_batch_size=8,
            data_parallel=8,
            recompute=recompute,
        )
        model, trainer = support.gpt(layers=2 * stages), Trainer()
        with_gap, without = (
            memory.estimate(model, support.node(), trainer, layout, 2048, c).stages[0]
            for c in (None, Calibration(memory={"waiting_gap": 0.0}))
        )
        return with_gap.reserved_gap - without.reserved_gap

    # A micro batch keeps the inputs of two layers, the embedding's dropout mask and the output that was sent.
    kept = (2 + 0.5 + 1) * 2 * 8 * 2048 * 2048 / 2**30
    assert added(4) == pytest.approx(0.15 * 3 * kept)
    assert added(16) == pytest.approx(0.15 * 15 * kept)
    assert added(1) == pytest.approx(0.0, abs=1e-9)
    assert added(4, Recompute()) == pytest.approx(0.0, abs=1e-9)


def test_a_gradient_that_is_added_needs_room_beside_the_one_it_is_added_to() -> None:
    """Where a wide model's micro batch is one short sequence, its weight's gradient is larger than any activation."""
    tokens, hidden, ffn = 256, 8192, 4 * 8192
    changes = {"zero_stage": 1, "data_parallel": 64, "gradient_accumulation_steps": 2}
    e = _estimate(changes, support.gpt(layers=4, hidden=hidden, heads=64), seq=tokens)
    assert e.peak_phase == "forward_backward"
    # Gradients of the output (the mask that made it is freed) and of the input, and the weight's own.
    borrowed = tokens * hidden + 2 * tokens * ffn + 2 * hidden * ffn
    assert e.stages[0].transient == pytest.approx(borrowed / 2**30)
