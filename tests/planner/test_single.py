"""Owns tests of estimating one layout, and of "what if"."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings

from gpt_tune.errors import UserError
from gpt_tune.layouts.choices import CHOICES
from gpt_tune.layouts.layout import Layout, Recompute
from gpt_tune.planner import estimate, search, what_if
from tests.layouts.support import layouts
from tests.planner.support import request


def layout_of(**keys: Any) -> Layout:
    result = estimate(request(**keys))
    assert result.plan is not None
    return result.plan.layout


def test_what_is_not_fixed_follows() -> None:
    x = layout_of(fix=["tensor_parallel=8", "pipeline_parallel=2"], global_batch_size=64)
    assert (x.data_parallel, x.gradient_accumulation_steps, x.micro_batch_size) == (4, 16, 1)
    assert (x.zero_stage, x.recompute, x.flash_attention) == (0, Recompute(), True)
    x = layout_of(fix=["tensor_parallel=8", "gradient_accumulation_steps=8"], global_batch_size=128)
    assert (x.data_parallel, x.micro_batch_size) == (8, 2)
    assert layout_of(fix=["recompute=full"]).recompute == Recompute("full", "uniform", 1)
    assert layout_of(fix=["recompute.layers=4"]).recompute == Recompute("full", "uniform", 4)
    assert layout_of(fix=["context_parallel=2"]).context_method == "ulysses"
    assert layout_of(fix=["context_parallel=2"], trainer="megatron-lm").context_method == "ring"
    assert layout_of(trainer="fsdp").zero_stage == 3
    assert not layout_of(precision="fp32").flash_attention


@pytest.mark.parametrize(
    ("fix", "rule"),
    [
        (["tensor_parallel=8", "pipeline_parallel=4", "zero_stage=2"], "zero-pipeline"),
        (["tensor_parallel=7"], "gpus"),
        (["tensor_parallel=64"], "heads-tp"),
        (["tensor_parallel=8", "micro_batch_size=3"], "global-batch"),
        (["recompute.method=block", "recompute.layers=4"], "recompute-block-ignored"),
        (["context_parallel=2", "pipeline_parallel=2"], "ulysses-alone"),
        (["precision=fp32", "flash_attention=true"], "flash-precision"),
        (["pipeline_parallel=128"], "stages-layers"),
    ],
    ids=str,
)
def test_an_illegal_layout_is_explained_not_hidden(fix: list[str], rule: str) -> None:
    result = estimate(request(fix=fix))
    assert not result.legal
    found = {p.rule: p for p in result.problems}
    assert rule in found
    assert found[rule].fix
    if rule != "stages-layers":
        assert result.plan is not None
        assert result.plan.step.seconds > 0


def test_a_legal_layout_has_no_problems() -> None:
    result = estimate(request(fix=["tensor_parallel=8", "pipeline_parallel=8"], global_batch_size=64))
    assert result.legal
    assert result.problems == ()


def test_the_same_layout_estimates_the_same_as_in_the_search() -> None:
    asked = request()
    for plan in search(asked).plans[:3]:
        again = estimate(replace(asked, fixed={}), plan.layout).plan
        assert again is not None
        assert again.memory == plan.memory
        assert asdict(again.step) == pytest.approx(asdict(plan.step))


@given(layouts)
@settings(max_examples=40, deadline=None)
def test_any_layout_gets_an_answer(x: Layout) -> None:
    asked = request("mixtral-8x7b", 16, "h100", precision=x.precision)
    result = estimate(replace(asked, fixed={}), x)
    assert result.legal == (not result.problems)
    if result.plan is not None:
        assert result.plan.memory.allocated_gib > 0
        assert result.plan.step.seconds > 0


@pytest.mark.parametrize(
    ("key", "direction", "changed"),
    [
        ("tensor_parallel", 1, {"tensor_parallel": 16, "data_parallel": 2}),
        ("tensor_parallel", -1, {"tensor_parallel": 4, "data_parallel": 8}),
        ("pipeline_parallel", 1, {"pipeline_parallel": 4, "data_parallel": 2}),
        ("micro_batch_size", 1, {"micro_batch_size": 2, "gradient_accumulation_steps": 8}),
        ("micro_batch_size", -1, {"micro_batch_size": 1}),
        ("zero_stage", 1, {"zero_stage": 1}),
        ("zero_stage", -1, {"zero_stage": 0}),
        ("recompute", 1, {"recompute": Recompute("selective")}),
        ("sequence_parallel", 1, {"sequence_parallel": True}),
        ("flash_attention", -1, {"flash_attention": False}),
        ("fusions.bias_gelu", -1, {}),
        ("precision", 1, {"precision": "fp16"}),
    ],
)
def test_what_if(key: str, direction: int, changed: dict[str, Any]) -> None:
    asked = request(fix=["tensor_parallel=8", "pipeline_parallel=2"], global_batch_size=64)
    plan = estimate(asked).plan
    assert plan is not None
    result = what_if(asked, plan, key, direction)
    assert result.plan is not None
    for name, value in changed.items():
        assert getattr(result.plan.layout, name) == value
    assert result.plan.layout.global_batch_size == 64


@pytest.mark.parametrize("trainer", ["megatron-deepspeed", "megatron-lm", "fsdp", "qlora"])
@pytest.mark.parametrize("key", [k for k in CHOICES if not k.startswith("trainer.")])
def test_what_if_answers_on_every_key_or_says_what_it_follows_from(key: str, trainer: str) -> None:
    asked = request("llama-3-8b", 16, "h100", trainer=trainer)
    plan = estimate(asked).plan
    assert plan is not None
    for direction in (1, -1):
        if key in ("data_parallel", "gradient_accumulation_steps", "global_batch_size"):
            with pytest.raises(UserError, match="follows"):
                what_if(asked, plan, key, direction)
            continue
        result = what_if(asked, plan, key, direction)
        assert result.plan is not None or not result.legal
        assert all(p.text and p.fix for p in result.problems)


def test_what_if_to_full_recompute_fills_in_its_method() -> None:
    asked = request(fix=["tensor_parallel=8", "recompute=selective"])
    plan = estimate(asked).plan
    assert plan is not None
    result = what_if(asked, plan, "recompute.granularity", 1)
    assert result.plan is not None
    assert result.plan.layout.recompute == Recompute("full", "uniform", 1)
    back = what_if(asked, result.plan, "recompute.granularity", -1)
    assert back.plan is not None
    assert back.plan.layout.recompute == Recompute("selective")


@pytest.mark.parametrize(
    "key", ["data_parallel", "gradient_accumulation_steps", "colour", "trainer.pipeline_engine"]
)
def test_what_if_on_what_follows_or_is_unknown(key: str) -> None:
    asked = request(fix=["tensor_parallel=8"])
    plan = estimate(asked).plan
    assert plan is not None
    with pytest.raises(UserError):
        what_if(asked, plan, key, 1)


def test_what_if_steps_over_what_the_trainer_has() -> None:
    asked = request("llama-3-8b", 8, "h100", trainer="lora")
    plan = estimate(asked).plan
    assert plan is not None
    assert plan.layout.zero_stage == 0
    result = what_if(asked, plan, "zero_stage", 1)
    assert result.legal
    assert result.plan is not None
    assert result.plan.layout.zero_stage == 2
    result = what_if(asked, plan, "recompute.granularity", 1)
    assert result.legal
    assert result.plan is not None
    assert result.plan.layout.recompute.granularity == "full"
