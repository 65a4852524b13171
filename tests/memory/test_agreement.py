"""Tests that one layout and a batch of layouts get the same memory, whatever the model, trainer and layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_tune import memory
from gpt_tune.calibration.constants import Calibration
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout, Recompute, Trainer
from gpt_tune.memory.types import PEAK_PHASES
from gpt_tune.models.shape import ModelShape
from tests.memory import support

MODELS = (
    support.gpt(),
    support.gpt(layers=17, positions="none"),
    support.llama(),
    support.llama(kv_heads=32, tied_embeddings=True),
    support.moe(),
    support.moe(layers=9, dense_layers=1),
    support.moe(dense_layers=0),
)
FIGURES = ("allocated_gib", "reserved_gib", "device_gib", "low_gib", "high_gib", "oom_probability")


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(support.TRAINERS),
    st.lists(support.layouts(), min_size=1, max_size=6),
    st.sampled_from((512, 2048, 8192)),
    st.sampled_from((None, Calibration(memory={"cluster_gib": -1.5, "layer_gap": 2.0}, memory_error=0.03))),
)
def test_estimate_and_batch_agree_exactly(
    model: ModelShape, trainer: Trainer, many: list[Layout], seq: int, calibration: Calibration | None
) -> None:
    node = support.node()
    batch = memory.estimate_batch(model, node, trainer, LayoutBatch.of(many), seq, calibration)
    for i, one in enumerate(many):
        full = memory.estimate(model, node, trainer, one, seq, calibration)
        for name in FIGURES:
            column = getattr(batch, name)
            assert column[i] == getattr(full, name), (name, one)
        assert PEAK_PHASES[batch.peak_phase[i]] == full.peak_phase
        assert full.stages[batch.worst_stage[i]].total == full.device_gib


def test_a_batch_longer_than_a_chunk_equals_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpt_tune.memory import estimator

    many = [
        support.layout(
            tensor_parallel=t, pipeline_parallel=p, micro_batch_size=b, gradient_accumulation_steps=8
        )
        for t in (1, 2, 4)
        for p in (1, 2, 3, 8)
        for b in (1, 4)
    ]
    batch = LayoutBatch.of(many)
    model, node, trainer = support.gpt(), support.node(), Trainer()
    whole = memory.estimate_batch(model, node, trainer, batch, 2048)
    monkeypatch.setattr(estimator, "CHUNK", 5)
    parts = memory.estimate_batch(model, node, trainer, batch, 2048)
    assert np.array_equal(whole.device_gib, parts.device_gib)
    assert np.array_equal(whole.worst_stage, parts.worst_stage)


def test_estimate_many_is_estimate_of_each() -> None:
    many = [support.layout(pipeline_parallel=p, gradient_accumulation_steps=4) for p in (1, 5, 2)]
    model, node, trainer = support.gpt(), support.node(), Trainer()
    together = memory.estimate_many(model, node, trainer, LayoutBatch.of(many), 2048)
    assert together == [memory.estimate(model, node, trainer, one, 2048) for one in many]
    assert [len(e.stages) for e in together] == [1, 5, 2]


def test_an_empty_batch_is_empty() -> None:
    batch = LayoutBatch.of([])
    assert len(memory.estimate_batch(support.gpt(), support.node(), Trainer(), batch, 2048)) == 0
    assert memory.estimate_many(support.gpt(), support.node(), Trainer(), batch, 2048) == []


@pytest.mark.parametrize(("stages", "steps", "worst"), [(8, 4, 5), (16, 5, 12), (16, 3, 14)])
def test_with_few_micro_batches_the_stage_that_adds_gradients_up_first_is_the_worst(
    stages: int, steps: int, worst: int
) -> None:
    """Stages before it hold all micro batches before their first backward pass; it runs one while others wait."""
    model = support.gpt(layers=5 * stages, hidden=4096, heads=32, vocab=1024)
    layout = support.layout(
        pipeline_parallel=stages,
        gradient_accumulation_steps=steps,
        zero_stage=1,
        data_parallel=8,
        recompute=Recompute("full", "uniform", 1),
    )
    trainer = Trainer(deepspeed="0.19.8")
    full = memory.estimate(model, support.node(), trainer, layout, 2048)
    batch = memory.estimate_batch(model, support.node(), trainer, LayoutBatch.of([layout]), 2048)
    assert batch.worst_stage[0] == worst
    assert batch.device_gib[0] == full.device_gib == max(s.total for s in full.stages)
