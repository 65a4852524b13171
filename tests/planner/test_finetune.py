"""Owns tests of fine-tuning plans: strategy, checkpointing and micro batch for LoRA, QLoRA and all weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.layouts.layout import Layout, Recompute
from gpt_tune.models import catalogue
from gpt_tune.planner import estimate, plan_json, search, what_if
from tests.planner.support import request

RUNS = json.loads((Path(__file__).parents[1] / "data" / "memory" / "finetune_h200.json").read_text())["runs"]
A10G: dict[str, Any] = {"model": "qwen3-8b", "gpus": 4, "gpu": "a10g", "trainer": "qlora", "seq_length": 1536}


def test_a_qlora_plan_for_four_small_gpus() -> None:
    asked = request(**A10G)
    found = search(asked)
    assert asked.global_batch_size == 16
    assert found.plans
    for plan in found.plans:
        x = plan.layout
        assert (x.tensor_parallel, x.pipeline_parallel, x.data_parallel) == (1, 1, 4)
        assert x.zero_stage in (0, 2, 3)
        assert (plan.memory.oom_probability or 0) <= 0.5
        assert plan.step.low < plan.step.seconds / 1.5
        assert {"finetune-rough-time", "finetune-strategy"} <= {r.rule for r in plan.reasons}
        warned = "qlora-zero3" in {r.rule for r in plan.reasons}
        assert warned == (x.zero_stage == 3)
    assert {p.layout.zero_stage for p in found.plans} >= {0, 2}
    data = json.loads(json.dumps(plan_json(asked, found), allow_nan=False))
    assert data["plans"][0]["trainer"]["name"] == "qlora"


def test_one_small_gpu_holds_8b_in_4_bits_but_not_in_16() -> None:
    one = {**A10G, "gpus": 1}
    plans = search(request(**one)).plans
    assert plans
    assert plans[0].layout.recompute.granularity == "full"
    assert search(request(**{**one, "trainer": "full-finetune"})).plans == ()


def test_strategies_are_ordered_by_memory() -> None:
    for trainer in ("qlora", "lora", "full-finetune"):
        asked = request(**{**A10G, "trainer": trainer, "gpu": "h100", "gpus": 8})
        held = []
        for zero in (0, 2, 3):
            plan = estimate(replace(asked, fixed={"zero_stage": zero})).plan
            assert plan is not None
            held.append(plan.memory.device_gib)
        assert held[0] > held[1] > held[2]


@pytest.mark.parametrize("trainer", ["qlora", "lora", "full-finetune"])
@pytest.mark.parametrize(
    ("fix", "rule"),
    [
        (["tensor_parallel=2"], "degree-unsupported"),
        (["pipeline_parallel=2"], "degree-unsupported"),
        (["zero_stage=1"], "zero-unsupported"),
        (["recompute=selective"], "recompute-unsupported"),
        (["micro_batch_size=3"], "global-batch"),
    ],
)
def test_what_these_trainers_cannot_do_is_explained(trainer: str, fix: list[str], rule: str) -> None:
    result = estimate(request(**{**A10G, "trainer": trainer, "fix": fix}))
    assert rule in {p.rule for p in result.problems}
    assert all(p.text and p.fix for p in result.problems)


def test_experts_in_4_bits_are_refused_with_what_works() -> None:
    asked = request("mixtral-8x7b", 8, "h100", trainer="qlora", seq_length=1024)
    found = search(asked)
    assert found.plans == ()
    assert "experts-qlora" in {m.rule for m in found.rejected}
    single = estimate(asked)
    assert not single.legal
    assert single.plan is None
    assert search(replace(asked, trainer=replace(asked.trainer, name="lora"))).plans


def test_what_if_checkpointing() -> None:
    asked = request(**{**A10G, "gpu": "h100"})
    plan = estimate(asked).plan
    assert plan is not None
    other = what_if(asked, plan, "recompute", 1).plan
    while other is not None and other.layout.recompute.granularity == "selective":
        other = what_if(asked, other, "recompute", 1).plan
    assert other is not None
    assert other.layout.recompute == Recompute("full", "uniform", 1)
    assert other.memory.device_gib < plan.memory.device_gib
    assert other.step.seconds > plan.step.seconds


@pytest.mark.parametrize("run", [r for r in RUNS if r["strategy"] == "ddp"], ids=lambda r: str(r["name"]))
def test_rough_time_stays_rough(run: dict[str, Any]) -> None:
    model = replace(catalogue.get(run["model"]), layers=run["layers"])
    trainer = "full-finetune" if run["method"] == "full" else run["method"]
    steps = run["gradient_accumulation_steps"]
    batch = run["micro_batch_size"] * steps
    asked = request(model, 1, "h200", trainer=trainer, seq_length=run["seq_length"], global_batch_size=batch)
    layout = Layout(
        micro_batch_size=run["micro_batch_size"],
        gradient_accumulation_steps=steps,
        global_batch_size=batch,
        recompute=Recompute("full", "uniform", 1) if run["gradient_checkpointing"] else Recompute(),
    )
    plan = estimate(asked, layout).plan
    assert plan is not None
    assert plan.step.low < run["step_seconds"] < plan.step.high
