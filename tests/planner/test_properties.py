"""Owns properties every legal layout's estimates have, whatever the model and the trainer."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpt_tune.layouts import legality
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout, Recompute
from gpt_tune.memory import StageMemory
from gpt_tune.planner.evaluate import Evaluator
from gpt_tune.planner.types import PlanRequest
from tests.planner.support import REQUESTS, request

EVALUATORS = {name: Evaluator(request(**keys)) for name, keys in REQUESTS.items()}
TERMS = [f.name for f in fields(StageMemory) if f.name not in ("stage", "total")]


@st.composite
def legal_layouts(draw: st.DrawFn) -> tuple[Evaluator, Layout]:
    """A legal layout of one of the requests."""
    evaluator = EVALUATORS[draw(st.sampled_from(sorted(EVALUATORS)))]
    asked: PlanRequest = evaluator.request
    features = evaluator.setting.features
    tp = draw(st.sampled_from([1, 2, 4, 8] if features.tensor_parallel else [1]))
    pp = draw(st.sampled_from([1, 2, 4, 8] if features.pipeline_parallel else [1]))
    assume(asked.gpus % (tp * pp) == 0)
    data = asked.gpus // (tp * pp)
    size = draw(st.sampled_from([1, 2, 4]))
    x = Layout(
        tensor_parallel=tp,
        pipeline_parallel=pp,
        data_parallel=data,
        sequence_parallel=tp > 1 and draw(st.booleans()),
        zero_stage=draw(st.sampled_from(features.zero_stages)),
        micro_batch_size=size,
        gradient_accumulation_steps=max(1, asked.global_batch_size // (data * size)),
        global_batch_size=asked.global_batch_size,
        recompute=draw(st.sampled_from([Recompute(), Recompute("full", "uniform", 1)])),
        precision=asked.precision,  # type: ignore[arg-type]
        flash_attention=asked.precision != "fp32",
    )
    assume(not legality.problems(x, evaluator.setting))
    return evaluator, x


@given(legal_layouts())
@settings(max_examples=80, deadline=None)
def test_memory_terms_are_not_negative_and_add_up(case: tuple[Evaluator, Layout]) -> None:
    evaluator, x = case
    found = evaluator.memory([x])[0]
    assert len(found.stages) == x.pipeline_parallel
    for stage in found.stages:
        assert all(getattr(stage, t) >= 0 for t in TERMS)
        assert sum(getattr(stage, t) for t in TERMS) == pytest.approx(stage.total)
    assert found.allocated_gib <= found.reserved_gib <= found.device_gib
    assert found.low_gib <= found.device_gib <= found.high_gib
    assert found.device_gib == pytest.approx(max(s.total for s in found.stages))
    if found.oom_probability is not None:
        assert 0 <= found.oom_probability <= 1


@given(st.lists(legal_layouts(), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_batch_and_single_agree(cases: list[tuple[Evaluator, Layout]]) -> None:
    evaluator = cases[0][0]
    many = [x for e, x in cases if e is evaluator]
    oom, device = evaluator.oom_probability(LayoutBatch.of(many))
    seconds = evaluator.seconds(LayoutBatch.of(many))
    for i, x in enumerate(many):
        assert device[i] == pytest.approx(evaluator.memory([x])[0].device_gib, rel=1e-9)
        assert oom[i] == pytest.approx(evaluator.memory([x])[0].oom_probability or 0.0, abs=1e-9)
        assert seconds[i] == pytest.approx(evaluator.steps([x])[0].seconds, rel=1e-9)


@pytest.mark.parametrize("name", ["145b", "llama-mds", "bloom", "llama-mlm"])
def test_more_tensor_parallelism_never_holds_more_parameters(name: str) -> None:
    evaluator = EVALUATORS[name]
    held = []
    for tp in (1, 2, 4, 8):
        x = Layout(
            tensor_parallel=tp, pipeline_parallel=2, global_batch_size=64, gradient_accumulation_steps=64
        )
        x = replace(x, precision=evaluator.request.precision)  # type: ignore[arg-type]
        held.append(np.array([s.parameters for s in evaluator.memory([x])[0].stages]))
    for fewer, more in pairwise(held):
        assert np.all(more <= fewer)


@pytest.mark.parametrize("name", ["145b", "llama-mds", "bloom"])
@pytest.mark.parametrize("data", [2, 8])
def test_zero_stages_are_ordered(name: str, data: int) -> None:
    """Each ZeRO stage holds at most the model states of the one before, once there is something to share."""
    evaluator = EVALUATORS[name]
    held = []
    for zero in range(4):
        x = Layout(tensor_parallel=4, data_parallel=data, zero_stage=zero, global_batch_size=64)
        x = replace(x, gradient_accumulation_steps=64 // data, precision=evaluator.request.precision)  # type: ignore[arg-type]
        stage = evaluator.memory([x])[0].stages[0]
        held.append(stage.parameters + stage.gradients + stage.optimizer)
    for lower, higher in pairwise(held):
        assert higher <= lower * (1 + 1e-9)


@given(legal_layouts())
@settings(max_examples=40, deadline=None)
def test_full_recompute_takes_less_activation_memory_and_more_compute(case: tuple[Evaluator, Layout]) -> None:
    evaluator, x = case
    plain, full = replace(x, recompute=Recompute()), replace(x, recompute=Recompute("full", "uniform", 1))
    assert evaluator.steps([full])[0].compute >= evaluator.steps([plain])[0].compute
    # The top-level `allocated` belongs to the stage that is worst by device memory, which may be another one.
    assert evaluator.memory([full])[0].device_gib <= evaluator.memory([plain])[0].device_gib * 1.02


@given(legal_layouts())
@settings(max_examples=40, deadline=None)
def test_step_parts_are_not_negative_and_add_up(case: tuple[Evaluator, Layout]) -> None:
    evaluator, x = case
    found = evaluator.steps([x])[0]
    parts = [f.name for f in fields(found)][3:12]
    assert parts[0] == "compute"
    assert parts[-1] == "other"
    assert all(getattr(found, p) >= 0 for p in parts)
    assert sum(getattr(found, p) for p in parts) == pytest.approx(found.seconds)
    assert found.low <= found.seconds <= found.high
    assert 0 < found.model_tflops <= found.hardware_tflops


@pytest.mark.parametrize("name", ["llama-mlm", "llama-fsdp", "mixtral"])
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_more_recomputed_layers_never_need_more_memory(name: str, stages: int) -> None:
    """Down to all of a stage, each by itself."""
    evaluator = EVALUATORS[name]
    asked = evaluator.request
    most = -(-asked.model.layers // stages)
    x = Layout(
        pipeline_parallel=stages,
        data_parallel=asked.gpus // stages,
        zero_stage=max(evaluator.setting.features.zero_stages),
        gradient_accumulation_steps=stages,
        global_batch_size=asked.gpus,
    )
    layouts = [replace(x, recompute=Recompute("full", "block", n)) for n in range(1, most + 1)]
    oom, device = evaluator.oom_probability(LayoutBatch.of(layouts))
    assert np.all(np.diff(device) <= 1e-9)
    assert np.all(np.diff(oom) <= 1e-9)
