"""Owns tests that the change offered for an illegal layout makes it legal, whatever is wrong with it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_tune.errors import UserError
from gpt_tune.layouts import choices, legality
from gpt_tune.planner import build_request, estimate, search
from gpt_tune.planner.build import derived
from gpt_tune.planner.evaluate import Evaluator
from gpt_tune.planner.misses import OOM_RULE
from gpt_tune.planner.types import PlanRequest, Problem, Rejected
from tests.planner.support import REQUESTS, request

KEY_VALUE = r"([a-z_]+(?:\.[a-z_]+)?)=([a-z0-9]+)"
DEGREES = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64, 100])
FIXED = st.fixed_dictionaries(
    {},
    optional={
        **{f"{name}_parallel": DEGREES for name in ("tensor", "pipeline", "context", "expert", "data")},
        "virtual_pipeline": DEGREES,
        "micro_batch_size": st.sampled_from([1, 2, 3, 5, 8, 16]),
        "gradient_accumulation_steps": st.sampled_from([1, 2, 3, 16, 64]),
        "zero_stage": st.integers(0, 3),
        "recompute.granularity": st.sampled_from(["none", "selective", "full"]),
        "recompute.method": st.sampled_from(["uniform", "block"]),
        "recompute.layers": st.sampled_from([1, 3, 8, 100]),
        "sequence_parallel": st.booleans(),
        "context_method": st.sampled_from(["ring", "ulysses"]),
        "trainer.gradient_accumulation_dtype": st.sampled_from(["fp32", "bf16"]),
    },
)
MODELS = (
    "gpt-1.3b",
    "llama-3.1-8b",
    "mixtral-8x7b",
    "falcon-7b",
    "layers=30,hidden=3072,heads=24,kv_heads=3",
    "layers=13,hidden=1040,heads=13",
)
TRAINERS = (
    *("megatron-deepspeed", "megatron-deepspeed@deepspeed-0.19.5", "megatron-deepspeed@deepspeed-0.11.0"),
    *("megatron-lm", "fsdp", "deepspeed", "lora"),
)
QUESTIONS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "gpus": st.sampled_from([3, 8, 24, 64]),
        "gpu": st.sampled_from(["dgx-h100", "p4d", "v100-32"]),
        "trainer": st.sampled_from(TRAINERS),
        "global_batch_size": st.sampled_from([None, 7, 64, 100, 384]),
        "seq_length": st.sampled_from([None, 777, 4096]),
        "precision": st.sampled_from([None, None, "fp8", "fp32"]),
    }
)


def with_fix(question: dict[str, Any], fix: str) -> dict[str, Any]:
    """The question as a user would ask it again who follows the first thing the fix names."""
    changed = {**question, "fix": dict(question["fix"])}
    if gpus := re.search(r"--gpus (\d+)", fix):
        changed["fix"].pop("data_parallel", None)
        return {**changed, "gpus": int(gpus[1])}
    if trainer := re.search(r"--trainer (\S+)", fix):
        return {**changed, "trainer": trainer[1]}
    if length := re.match(r"a sequence length of (\d+)", fix):
        return {**changed, "seq_length": int(length[1])}
    first = re.match(KEY_VALUE, fix)
    assert first, fix
    others = re.match(r"(?: or \w+)* with (.*)", fix[first.end() :])
    for key, value in [first.groups(), *re.findall(KEY_VALUE, others[1] if others else "")]:
        if key in ("global_batch_size", "precision"):
            changed[key] = value
        else:
            changed["fix"][choices.known_key(key)] = value
    return changed


def asked(question: dict[str, Any]) -> PlanRequest:
    keys = {**question, "fix": [f"{key}={value}" for key, value in question["fix"].items()]}
    return build_request(keys.pop("model"), keys.pop("gpus"), **keys)


@given(QUESTIONS, FIXED)
@settings(max_examples=120, deadline=None)
def test_following_each_fix_ends_at_a_legal_layout(question: dict[str, Any], fixed: dict[str, Any]) -> None:
    question = {**question, "fix": fixed}
    try:
        result = estimate(asked(question))
    except UserError:
        return
    trail = []
    while not result.legal:
        problem: Problem = result.problems[0]
        trail.append((problem.rule, problem.text, problem.fix))
        assert len(trail) <= 10, trail
        question = with_fix(question, problem.fix)
        result = estimate(asked(question))
        assert (problem.rule, problem.text) not in [(p.rule, p.text) for p in result.problems], trail


def changed_layout(asked: PlanRequest, miss: Rejected) -> tuple[PlanRequest, Any]:
    """A near miss after its fix."""
    if length := re.match(r"a sequence length of (\d+)(?: or \d+)*$", miss.fix):
        return replace(asked, seq_length=int(length[1])), miss.layout
    first = re.match(KEY_VALUE, miss.fix)
    assert first, miss.fix
    others = re.match(r"(?: or \w+)* with (.*)", miss.fix[first.end() :])
    pairs = [first.groups(), *re.findall(KEY_VALUE, others[1] if others else "")]
    fixed = choices.parse_fix([f"{key}={value}" for key, value in pairs])
    plain = {k: v for k, v in fixed.items() if not k.startswith("trainer.")}
    whole = replace(
        asked,
        trainer=choices.apply_to_trainer(asked.trainer, fixed),
        global_batch_size=fixed.get("global_batch_size", miss.layout.global_batch_size),
    )
    return whole, derived(choices.apply(miss.layout, plain), whole, {**asked.fixed, **fixed})


@pytest.mark.parametrize(
    "keys",
    [
        *REQUESTS.values(),
        {"model": "gemma-2b", "gpus": 32, "gpu": "g6e", "global_batch_size": 64},
        {"model": "llama-3.1-8b", "gpus": 5, "gpu": "h200", "global_batch_size": 64},
        {"model": "opt-66b", "gpus": 48, "gpu": "dgx-a100"},
        {"model": "gpt-13b", "gpus": 8, "gpu": "h100", "fix": ["pipeline_parallel=8"]},
    ],
    ids=str,
)
def test_a_near_miss_is_one_change_from_a_legal_layout(keys: dict[str, Any]) -> None:
    question = request(**keys)
    found = search(question)
    looked_at = 0
    for miss in found.rejected:
        if miss.rule == OOM_RULE:
            continue
        looked_at += 1
        whole, layout = changed_layout(question, miss)
        evaluator = Evaluator(whole)
        assert legality.problems(layout, evaluator.setting) == (), miss
        assert miss.rule not in [v.rule for v in legality.warnings(layout, evaluator.setting)], miss
        if found.plans:
            assert (evaluator.memory([layout])[0].oom_probability or 0.0) <= 0.5, miss
    assert looked_at or keys.get("gpus") == 1 or keys.get("trainer") in ("qlora", "full-finetune")


def problem_of(rule: str, **keys: Any) -> Problem:
    return next(p for p in estimate(request(**keys)).problems if p.rule == rule)


def test_what_follows_from_a_change_is_said_with_it() -> None:
    problem = problem_of(
        "kv-heads-tp", model="gemma-2b", gpus=32, gpu="h100", global_batch_size=32,
        fix=["tensor_parallel=8", "micro_batch_size=8"],
    )  # fmt: skip
    assert problem.fix == "tensor_parallel=1 with micro_batch_size=1"
    problem = problem_of(
        "gpus", model="gpt-1.3b", gpus=64, gpu="h100",
        fix=["tensor_parallel=3", "data_parallel=21", "gradient_accumulation_steps=16"],
    )  # fmt: skip
    assert problem.fix.startswith("tensor_parallel=4 with data_parallel=16")


def test_a_split_that_no_single_size_mends_gets_two() -> None:
    problem = problem_of("gpus", gpus=64, fix=["tensor_parallel=7", "pipeline_parallel=9"])
    assert problem.fix == "tensor_parallel=8 with pipeline_parallel=8"


def test_every_degree_a_trainer_lacks_is_named_at_once() -> None:
    problem = problem_of(
        "degree-unsupported", model="llama-3.1-8b", gpus=16, gpu="h100", trainer="lora",
        fix=["tensor_parallel=2", "pipeline_parallel=4"],
    )  # fmt: skip
    assert "no tensor parallel (2) and no pipeline parallel (4)" in problem.text
    assert problem.fix == "tensor_parallel=1 with pipeline_parallel=1"


def test_a_gpu_without_bf16_is_never_offered_it() -> None:
    for keys in ({"trainer": "deepspeed", "precision": "fp8"}, {"precision": "fp8"}, {"precision": "bf16"}):
        result = estimate(request("gpt-1.3b", 8, "v100-32", **keys))
        assert [p.fix for p in result.problems if "precision" in p.fix] == ["precision=fp16"] * len(
            [p for p in result.problems if "precision" in p.fix]
        )
        assert any(p.fix == "precision=fp16" for p in result.problems)


def test_what_stands_in_the_way_of_every_layout_is_what_is_said() -> None:
    """All break the rule about fp8; most of them others, too."""
    found = search(request("yi-6b", 64, "dgx-a100", precision="fp8", fix=["pipeline_parallel=8"]))
    assert not found.plans
    assert {miss.rule for miss in found.rejected} <= {"fp8-gpu", "fp8-gqa"}


def test_what_fits_is_no_near_miss() -> None:
    for model in ("layers=13,hidden=1040,heads=13", "gpt-125m"):
        found = search(request(model, 1, "a100", global_batch_size=1))
        assert found.plans
        assert not [miss for miss in found.rejected if "chance of 0%" in miss.text]


@pytest.mark.parametrize(
    "keys",
    [
        {"model": "bloom-7b1", "gpus": 8, "gpu": "p4d", "global_batch_size": 7},
        {"model": "opt-66b", "gpus": 48, "gpu": "p5", "global_batch_size": 100, "fix": ["tensor_parallel=4"]},
        {"model": "layers=24,hidden=2048,heads=16", "gpus": 2, "gpu": "dgx-a100", "trainer": "megatron-lm"},
        {"model": "qwen3-4b", "gpus": 64, "gpu": "p4d", "trainer": "lora", "global_batch_size": 1024},
    ],
    ids=str,
)
def test_where_something_fits_every_layout_that_does_not_is_told_how_to(keys: dict[str, Any]) -> None:
    question = request(**keys)
    found = search(question)
    assert found.plans
    lost = [miss for miss in found.rejected if miss.rule == OOM_RULE]
    assert lost
    for miss in lost:
        whole, layout = changed_layout(question, miss)
        result = estimate(replace(whole, fixed={}), layout)
        assert result.legal, miss
        assert result.plan is not None
        assert (result.plan.memory.oom_probability or 0.0) <= 0.5, miss


def test_more_gpus_come_with_the_batch_they_need() -> None:
    question = request("llama-3.1-8b", 1, "h100", global_batch_size=7)
    found = search(question)
    assert not found.plans
    gpus, batch = re.fullmatch(r"(\d+) GPUs with global_batch_size=(\d+)", found.rejected[0].fix).groups()  # type: ignore[union-attr]
    assert search(request("llama-3.1-8b", int(gpus), "h100", global_batch_size=int(batch))).plans
