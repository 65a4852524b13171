"""Tests the bytes of each optimizer class against what runs on one and two H200 settled at (per parameter)."""

from __future__ import annotations

import numpy as np
import pytest

from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Fusions, Layout, Trainer
from gpt_tune.memory.columns import Columns, build
from gpt_tune.memory.optimizers import States, states, uses_bf16_optimizer
from gpt_tune.memory.setup import Setup, make
from tests.memory import support


def _columns(trainer: Trainer, layout: Layout) -> tuple[Setup, Columns]:
    setup = make(support.gpt(), trainer, 2048, Fusions(), True)
    return setup, build(setup, LayoutBatch.of([layout]), np.zeros(1, dtype=np.int64))


def _steady(trainer: Trainer, layout: Layout) -> float:
    setup, c = _columns(trainer, layout)
    s = states(setup, c)
    return float(((s.parameters + s.flat_gradients + s.optimizer) / c.parameters)[0])


def _states(trainer: Trainer, layout: Layout) -> tuple[States, float]:
    setup, c = _columns(trainer, layout)
    return states(setup, c), float(c.parameters[0])


NEW = "0.19.8"


@pytest.mark.parametrize(
    ("precision", "zero", "dtype", "engine", "data", "steady"),
    [
        ("bf16", 0, None, True, 1, 16),
        ("bf16", 0, None, True, 2, 10),
        ("bf16", 1, "fp32", True, 1, 18),
        ("bf16", 1, "fp32", True, 2, 12),
        ("bf16", 1, None, True, 1, 14),
        ("bf16", 1, None, True, 2, 8),
        ("bf16", 2, None, False, 1, 14),
        ("bf16", 2, None, False, 2, 8),
        ("bf16", 3, None, False, 1, 16),
        ("bf16", 3, None, False, 2, 8),
        ("fp16", 0, None, True, 1, 14),
        ("fp16", 1, None, True, 1, 14),
        ("bf16", 0, None, False, 1, 14),
    ],
)
def test_bytes_a_parameter_between_steps(
    precision: str, zero: int, dtype: str | None, engine: bool, data: int, steady: float
) -> None:
    trainer = Trainer("megatron-deepspeed", None, NEW, dtype, pipeline_engine=engine)  # type: ignore[arg-type]
    layout = support.layout(precision=precision, zero_stage=zero, data_parallel=data)
    assert _steady(trainer, layout) == pytest.approx(steady)


@pytest.mark.parametrize(
    ("deepspeed", "zero", "dtype", "engine", "expected"),
    [
        # Up to 0.17.5 bf16 without ZeRO accumulates in fp32 unless told otherwise.
        ("0.16.4", 0, None, True, (True, 4.0)),
        ("0.17.5", 0, None, True, (True, 4.0)),
        ("0.17.6", 0, None, True, (True, 2.0)),
        ("0.16.4", 0, "bf16", True, (True, 2.0)),
        ("0.16.4", 0, None, False, (True, 4.0)),
        ("0.17.6", 0, None, False, (False, 2.0)),
        # With ZeRO-1 the class depends on the accumulation dtype, not on the version.
        ("0.16.4", 1, None, True, (False, 2.0)),
        ("0.16.4", 1, "fp32", True, (True, 4.0)),
        ("0.19.8", 1, "fp32", False, (True, 4.0)),
        ("0.19.8", 2, "fp32", False, (False, 4.0)),
    ],
)
def test_optimizer_class_follows_version_stage_and_dtype(
    deepspeed: str, zero: int, dtype: str | None, engine: bool, expected: tuple[bool, float]
) -> None:
    trainer = Trainer("megatron-deepspeed", None, deepspeed, dtype, pipeline_engine=engine)  # type: ignore[arg-type]
    setup, c = _columns(trainer, support.layout(zero_stage=zero))
    bf16_class, accumulated = uses_bf16_optimizer(setup, c)
    assert (bool(bf16_class[0]), float(accumulated[0])) == expected


@pytest.mark.parametrize(
    ("precision", "zero", "dtype", "data", "extra"),
    [
        ("bf16", 0, None, 1, 4),  # fp32 copy of the flat gradients
        ("bf16", 0, None, 2, 2),
        ("bf16", 1, "fp32", 1, 0),
        ("bf16", 1, None, 1, 6),  # a flat 16-bit copy and its fp32 copy
        ("bf16", 1, None, 2, 3),
        ("fp16", 0, None, 1, 8),
    ],
)
def test_bytes_borrowed_in_the_optimizer_step(
    precision: str, zero: int, dtype: str | None, data: int, extra: float
) -> None:
    trainer = Trainer("megatron-deepspeed", None, NEW, dtype)  # type: ignore[arg-type]
    s, size = _states(trainer, support.layout(precision=precision, zero_stage=zero, data_parallel=data))
    assert float(s.step[0]) / size == pytest.approx(extra)


def test_old_versions_keep_gradients_into_the_next_step() -> None:
    for deepspeed, kept in (("0.16.4", True), ("0.16.5", False), ("0.19.8", False)):
        s, _ = _states(Trainer("megatron-deepspeed", None, deepspeed), support.layout())
        assert bool(s.gradients_outlive_step[0]) is kept


@pytest.mark.parametrize(
    ("deepspeed", "stage", "has"),
    [("0.12.6", 1, False), ("0.13.0", 1, True), ("0.19.8", 1, True), ("0.6.0", 2, True)],
)
def test_zero1_has_a_bucket_of_its_own_since_0_13(deepspeed: str, stage: int, has: bool) -> None:
    """Before, gradients were copied into one block at the reduction: no more than there are, and only then."""
    trainer = Trainer("megatron-deepspeed", None, deepspeed, pipeline_engine=stage == 1)
    s, size = _states(trainer, support.layout(zero_stage=stage, precision="fp16"))
    bucket = 2 * 5e8
    assert float(s.bucket[0]) == (bucket if has else 0.0)
    rest = float(s.reduction[0]) - 2 * size
    assert rest == pytest.approx(0.0 if has else min(bucket, 2 * size), abs=1.0)


def test_ulysses_shards_the_optimizer_over_sequence_ranks_too() -> None:
    trainer = Trainer("megatron-deepspeed", None, NEW)
    layout = support.layout(context_parallel=2, context_method="ulysses", zero_stage=1)
    assert _steady(trainer, layout) == pytest.approx(8)


@pytest.mark.parametrize(
    ("zero", "dtype", "data", "steady"), [(1, None, 4, 9), (0, None, 4, 18), (1, "bf16", 4, 7)]
)
def test_megatron_lm_distributed_optimizer(zero: int, dtype: str | None, data: int, steady: float) -> None:
    trainer = Trainer("megatron-lm", None, None, dtype)  # type: ignore[arg-type]
    assert _steady(trainer, support.layout(zero_stage=zero, data_parallel=data)) == pytest.approx(steady)


def test_experts_shard_over_fewer_ranks_than_the_rest() -> None:
    setup = make(support.moe(dense_layers=0), Trainer("megatron-lm", None, None), 2048, Fusions(), True)
    layout = support.layout(expert_parallel=4, data_parallel=4, zero_stage=1)
    c = build(setup, LayoutBatch.of([layout]), np.zeros(1, dtype=np.int64))
    s = states(setup, c)
    assert float(s.optimizer[0]) == pytest.approx(12 * float(c.dense[0]) / 4 + 12 * float(c.experts[0]))
