"""Owns tests of the search: what it returns is legal, fits, is ordered, is the best there is, and is explained."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gpt_tune.layouts import choices, legality
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout, Recompute
from gpt_tune.planner import build_request, estimate, search
from gpt_tune.planner.evaluate import Evaluator
from gpt_tune.planner.judge import COMFORTABLE
from gpt_tune.planner.misses import OOM_RULE
from gpt_tune.planner.rank import TIE, TIGHT, UNSAFE, best, caution, expected_seconds
from gpt_tune.planner.types import Plan, PlanRequest
from tests.planner.support import REQUESTS, request


def score(plan: Plan) -> float:
    """Expected seconds, with what the ranking adds for risk."""
    share = plan.memory.device_gib / plan.memory.limit_gib if plan.memory.limit_gib else 0.0
    risk = float(caution(LayoutBatch.of([plan.layout]), plan.trainer, np.array([share]), 8)[0])
    return plan.step.seconds / (1.0 - (plan.memory.oom_probability or 0.0)) * risk


@pytest.fixture(params=REQUESTS, scope="module")
def searched(request: pytest.FixtureRequest) -> tuple[PlanRequest, Any]:
    keys = REQUESTS[request.param]
    asked = build_request(**{"model": "gpt-145b", "gpus": 64, "gpu": "p6-b200", **keys})
    return asked, search(asked)


def test_plans_are_legal_and_fit(searched: tuple[PlanRequest, Any]) -> None:
    asked, found = searched
    setting = Evaluator(asked).setting
    assert found.plans
    for plan in found.plans:
        x = plan.layout
        assert legality.problems(x, setting) == ()
        assert x.gpus == asked.gpus
        assert x.micro_batch_size * x.gradient_accumulation_steps * x.data_parallel == asked.global_batch_size
        assert plan.memory.oom_probability is None or plan.memory.oom_probability <= 0.5
        assert plan.layout.precision == asked.precision


def test_plans_are_ranked_and_different(searched: tuple[PlanRequest, Any]) -> None:
    _, found = searched
    assert [p.rank for p in found.plans] == list(range(1, len(found.plans) + 1))
    assert len({p.layout for p in found.plans}) == len(found.plans)
    for earlier, later in pairwise(found.plans):
        assert score(later) >= score(earlier) / (1.0 + TIE) * (1 - 1e-9)


def test_counts(searched: tuple[PlanRequest, Any]) -> None:
    _, found = searched
    assert 0 < found.seconds < 30
    assert len(found.rejected) <= 50
    assert len(found.rejected) <= found.rejected_count <= found.searched
    assert len(found.plans) + found.rejected_count <= found.searched


def test_every_plan_is_explained(searched: tuple[PlanRequest, Any]) -> None:
    _, found = searched
    for plan in found.plans:
        rules = [r.rule for r in plan.reasons]
        told_apart = ["versus"] if len(found.plans) > 1 else []
        assert rules[: len(told_apart) + 2] == [*told_apart, "memory-binding", "time-binding"]
        assert len(rules) == len(set(rules))
        assert all(r.text.strip() and r.source for r in plan.reasons)
    for miss in found.rejected:
        assert miss.text.endswith(".")
        assert miss.fix


def test_rejected_ones_are_illegal_or_do_not_fit(searched: tuple[PlanRequest, Any]) -> None:
    asked, found = searched
    evaluator = Evaluator(asked)
    for miss in found.rejected:
        if miss.rule == OOM_RULE:
            assert legality.problems(miss.layout, evaluator.setting) == ()
            assert (evaluator.memory([miss.layout])[0].oom_probability or 0) > 0.5
        else:
            known = {v.rule for v in legality.problems(miss.layout, evaluator.setting)}
            known |= {v.rule for v in legality.warnings(miss.layout, evaluator.setting)}
            assert miss.rule in known


def test_the_change_that_fixes_memory_does(searched: tuple[PlanRequest, Any]) -> None:
    """A fix KEY=VALUE of an out-of-memory miss, put in with what follows from it, fits."""
    asked, found = searched
    for miss in found.rejected:
        key, _, value = miss.fix.partition("=")
        if miss.rule != OOM_RULE or key not in choices.CHOICES or " " in value:
            continue
        x = choices.apply(miss.layout, choices.parse_fix([miss.fix]))
        if key == "recompute.granularity":
            x = replace(
                x, recompute=Recompute("full", "uniform", 1) if value == "full" else Recompute("selective")
            )
        split = x.tensor_parallel * x.pipeline_parallel * x.context_parallel
        data = asked.gpus // split
        steps = asked.global_batch_size // (data * x.micro_batch_size)
        x = replace(x, data_parallel=data, gradient_accumulation_steps=steps)
        result = estimate(replace(asked, fixed={}), x)
        assert result.legal
        assert result.plan is not None
        assert (result.plan.memory.oom_probability or 0) <= 0.5


def test_nothing_better_exists_in_a_small_space() -> None:
    """Every layout of 8 GPUs estimated one by one: none beats the first plan by more than a tie."""
    asked = request("gpt-2.7b", 8, "h100", global_batch_size=16)
    evaluator = Evaluator(asked)
    found = search(asked)
    rivals = []
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 4, 8):
            for zero in range(4):
                for size in (1, 2, 4, 8, 16):
                    for recompute in (
                        Recompute(),
                        Recompute("full", "uniform", 1),
                        Recompute("full", "uniform", 2),
                    ):
                        if tp * pp > 8 or 16 % (8 // (tp * pp) * size):
                            continue
                        data = 8 // (tp * pp)
                        x = Layout(
                            tensor_parallel=tp,
                            pipeline_parallel=pp,
                            data_parallel=data,
                            zero_stage=zero,
                            micro_batch_size=size,
                            gradient_accumulation_steps=16 // (data * size),
                            global_batch_size=16,
                            recompute=recompute,
                        )
                        if not legality.problems(x, evaluator.setting):
                            rivals.append(x)
    assert len(rivals) > 50
    scores = [
        evaluator.steps([x])[0].seconds / max(1.0 - (evaluator.memory([x])[0].oom_probability or 0.0), 1e-9)
        for x in rivals
    ]
    assert score(found.plans[0]) <= min(scores) * (1.0 + TIE) * (1.0 + UNSAFE) * (1.0 + TIGHT)


@pytest.mark.parametrize(
    "fix",
    [
        ["tensor_parallel=8", "pipeline_parallel=2"],
        ["zero_stage=1", "micro_batch_size=2"],
        ["recompute=full"],
        ["recompute=full", "recompute.layers=2", "recompute.method=uniform"],
        ["recompute=selective", "flash_attention=false"],
        ["sequence_parallel=true", "pipeline_parallel=8"],
        ["flash_attention=false"],
        ["data_parallel=4"],
        ["gradient_accumulation_steps=16"],
        ["fusions.bias_gelu=false", "fusions.masked_softmax=false"],
        ["zero_stage=3"],
    ],
    ids=str,
)
def test_fixed_keys_are_kept(fix: list[str]) -> None:
    asked = request(fix=fix, global_batch_size=64)
    found = search(asked)
    assert found.plans
    fixed = choices.parse_fix(fix)
    for layout in (*(p.layout for p in found.plans), *(m.layout for m in found.rejected)):
        assert choices.apply(layout, fixed) == layout


def test_a_layout_the_search_avoids_is_given_when_asked_for_with_a_warning() -> None:
    asked = request(fix=["recompute=selective", "pipeline_parallel=8", "tensor_parallel=8"])
    plan = search(asked).plans[0]
    assert plan.layout.recompute.granularity == "selective"
    assert "selective-flash" in {r.rule for r in plan.reasons}
    free = search(request(fix=["pipeline_parallel=8", "tensor_parallel=8"]))
    assert not any(p.layout.recompute.granularity == "selective" for p in free.plans)


def test_sequence_parallelism_with_learned_positions_is_proposed_with_a_note() -> None:
    """Measured on two GPUs: the job's own start of Megatron-DeepSpeed mends what stops it otherwise."""
    asked = request("gpt-6.7b", 8, "p4d", fix=["tensor_parallel=8", "micro_batch_size=16"])
    plan = next(p for p in search(asked).plans if p.layout.sequence_parallel)
    assert plan.environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    note = next(r for r in plan.reasons if r.rule == "sp-learned-positions")
    assert "repaired.py" in note.text
    llama = search(request("llama-2-7b", 8, "p4d", fix=["tensor_parallel=8", "micro_batch_size=8"])).plans
    assert not any(r.rule == note.rule for p in llama for r in p.reasons)


@pytest.mark.parametrize(
    ("fix", "rule"),
    [
        (["tensor_parallel=3"], "gpus"),
        (["tensor_parallel=64"], "heads-tp"),
        (["zero_stage=2", "pipeline_parallel=4"], "zero-pipeline"),
        (["virtual_pipeline=2"], "virtual-unsupported"),
        (["expert_parallel=2"], "experts-ep"),
        (["context_parallel=2", "tensor_parallel=2"], "ulysses-alone"),
        (
            ["recompute=full", "recompute.method=block", "recompute.layers=3", "tensor_parallel=8"],
            "recompute-block-ignored",
        ),
        (["micro_batch_size=3"], "global-batch"),
        (["data_parallel=5"], "gpus"),
        (["tensor_parallel=8", "pipeline_parallel=8", "data_parallel=2"], "gpus"),
        (["recompute=none", "recompute.layers=2"], "recompute-stray"),
    ],
    ids=str,
)
def test_impossible_fixed_keys_say_why(fix: list[str], rule: str) -> None:
    found = search(request(fix=fix))
    if rule == "recompute-block-ignored":
        # Without the pipeline engine the method works, so something may be left.
        assert all(p.layout.zero_stage >= 2 for p in found.plans)
    else:
        assert found.plans == ()
    assert rule in {m.rule for m in found.rejected}
    assert found.rejected_count >= len(found.rejected) > 0


def test_nothing_fits_says_what_would() -> None:
    found = search(request("gpt-1t", 8, "a100", gpus_per_node=8))
    assert found.plans == ()
    assert found.rejected
    assert all(m.rule == OOM_RULE or m.fix for m in found.rejected)
    words = [m.fix for m in found.rejected if m.rule == OOM_RULE]
    gpus = [int(w.split()[0]) for w in words if w.endswith("GPUs") and w.split()[0].isdigit()]
    assert gpus
    enough = request("gpt-1t", gpus[0], "a100", global_batch_size=gpus[0])
    assert search(enough).plans
    half = request("gpt-1t", gpus[0] // 2, "a100", global_batch_size=gpus[0])
    assert not search(half).plans


def test_recompute_of_some_layers_takes_as_few_as_fit() -> None:
    """One layer less would no longer be comfortable."""
    keys = {"trainer": "megatron-lm", "global_batch_size": 256}
    fix = [
        "tensor_parallel=4",
        "pipeline_parallel=4",
        "micro_batch_size=2",
        "recompute.method=block",
        "zero_stage=1",
    ]
    asked = request("llama-3-70b", 64, "h100", fix=fix, **keys)
    plans = search(asked).plans
    assert plans
    evaluator = Evaluator(asked)
    for plan in plans:
        x = plan.layout
        step = x.virtual_pipeline
        assert x.recompute.method == "block"
        assert x.recompute.layers is not None
        assert x.recompute.layers % step == 0
        fewer = x.recompute.layers - step
        if fewer >= step:
            less = replace(x, recompute=Recompute("full", "block", fewer))
            assert (evaluator.memory([less])[0].oom_probability or 0) > COMFORTABLE


@pytest.mark.parametrize(
    ("model", "trainer", "gpus"), [("llama-3.1-70b", "fsdp", 64), ("llama-3.1-8b", "megatron-lm", 16)]
)
def test_no_more_layers_are_recomputed_than_memory_asks_for(model: str, trainer: str, gpus: int) -> None:
    """Recompute of every layer with half of the memory empty is no plan where the trainer can leave layers out."""
    fix = ["tensor_parallel=1", "pipeline_parallel=1", "context_parallel=1"]
    found = search(request(model, gpus, "p5", trainer=trainer, seq_length=8192, fix=fix))
    best = found.plans[0]
    assert best.layout.recompute.method == "block"
    assert best.memory.device_gib > 0.8 * (best.memory.limit_gib or 0.0)
    whole = [p for p in found.plans if p.layout.recompute.method == "uniform"]
    assert all(p.step.seconds > best.step.seconds for p in whole)


def test_chunks_of_layers_are_tried_beside_single_ones() -> None:
    """They keep fewer inputs: with single layers nothing fits here."""
    found = search(request("qwen2.5-14b", 8, "p4d", trainer="megatron-lm", seq_length=32768))
    assert found.plans
    assert {p.layout.recompute.method for p in found.plans} == {"uniform"}
    assert all((p.layout.recompute.layers or 0) > 1 for p in found.plans)


def test_ties_go_to_the_simpler_layout() -> None:
    simple = Layout(tensor_parallel=2, data_parallel=4)
    split = Layout(tensor_parallel=4, pipeline_parallel=2)
    recomputed = replace(simple, recompute=Recompute("full", "uniform", 1))
    sharded = replace(simple, zero_stage=1)
    batch = LayoutBatch.of([split, recomputed, sharded, simple])
    assert best(batch, np.array([1.0, 1.001, 1.002, 1.009]), 4) == [3, 2, 1, 0]
    assert best(batch, np.array([1.0, 1.2, 1.2, 1.1]), 1) == [0]
    assert best(batch.take(np.array([], dtype=np.intp)), np.array([]), 3) == []


def test_a_risky_layout_counts_as_started_again() -> None:
    found = expected_seconds(np.array([1.0, 1.0, 1.0]), np.array([0.0, 0.5, 0.1]))
    assert found.tolist() == pytest.approx([1.0, 2.0, 1 / 0.9])


def test_top_and_order_do_not_change_the_best() -> None:
    few, many = search(request(top=3)), search(request(top=25))
    assert [p.layout for p in few.plans] == [p.layout for p in many.plans[:3]]
    assert len(many.plans) == 25


def test_unknown_memory_is_no_reason_to_reject() -> None:
    asked = request("gpt-1.3b", 8, "h100")
    gpu = replace(asked.node.gpu, memory_mib_driver=None, memory_gib_torch=None, memory_gb=None)
    found = search(replace(asked, node=replace(asked.node, gpu=gpu)))
    assert found.plans
    assert found.plans[0].memory.limit_gib is None
    assert found.plans[0].memory.oom_probability is None


def test_prime_numbers_of_everything() -> None:
    """7 GPUs, a batch of 11, a sequence of 1021: only what divides is left, and it is found."""
    found = search(request("gpt-350m", 7, "h100", global_batch_size=11, seq_length=1021))
    assert found.plans
    for plan in found.plans:
        assert plan.layout.data_parallel == 1
        assert plan.layout.pipeline_parallel == 7
