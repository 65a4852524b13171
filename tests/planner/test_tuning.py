"""What a fine-tuning job is beside its layout (adapters, optimizer, evaluation) reaches memory, time and reasons."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpt_tune.memory.finetune import EVAL_BATCH, Tuning
from gpt_tune.planner import estimate, plan_json, search
from gpt_tune.planner.types import Plan, PlanRequest
from tests.planner.support import request

SMALL: dict[str, Any] = {"model": "qwen3-8b", "gpus": 4, "gpu": "a100-80g", "seq_length": 1536}


def asked(trainer: str = "qlora", tuning: Tuning | None = None, **fix: Any) -> PlanRequest:
    return request(**SMALL, trainer=trainer, tuning=tuning, fix=fix)


def planned(trainer: str = "qlora", tuning: Tuning | None = None, **fix: Any) -> Plan:
    plan = estimate(asked(trainer, tuning, **fix)).plan
    assert plan is not None
    return plan


def test_a_bare_trainer_is_what_the_defaults_say() -> None:
    assert asked() == asked(tuning=Tuning())
    assert planned() == planned(tuning=Tuning())


@pytest.mark.parametrize("trainer", ["qlora", "lora"])
@pytest.mark.parametrize("zero", [0, 2, 3])
@pytest.mark.parametrize(
    "more",
    [
        {"lora_rank": 256},
        {"lora_dropout": 0.05},
        {"lora_targets": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")},
        {"optimizer": "adamw"},
    ],
    ids=lambda more: str(next(iter(more))),
)
def test_more_of_anything_needs_more_memory(trainer: str, zero: int, more: dict[str, Any]) -> None:
    little = Tuning(lora_rank=8, lora_dropout=0.0, lora_targets=("q_proj", "v_proj"), optimizer="adamw_8bit")
    less, larger = (planned(trainer, tuning, zero_stage=zero) for tuning in (little, replace(little, **more)))
    assert larger.memory.device_gib > less.memory.device_gib


def test_double_quantisation_saves_memory_of_4_bit_weights_alone() -> None:
    once, twice = Tuning(double_quantisation=False), Tuning()
    saved = planned("qlora", once).memory.device_gib - planned("qlora", twice).memory.device_gib
    # 32 bits for each block of 64 weights become 8 and a little: 0.37 bits a weight of the 6.9e9 quantised ones.
    assert 0.2 < saved < 0.4
    assert planned("lora", once).memory == planned("lora", twice).memory


def test_the_optimizer_of_deepspeed_counts_under_deepspeed_alone() -> None:
    usual = Tuning(optimizer="paged_adamw_8bit")
    forced = replace(usual, deepspeed_optimizer="adamw")
    assert planned(tuning=usual, zero_stage=0) == planned(tuning=forced, zero_stage=0)
    for zero in (2, 3):
        wide = planned(tuning=forced, zero_stage=zero)
        assert wide.memory == planned(tuning=Tuning(optimizer="adamw"), zero_stage=zero).memory
        assert wide.memory.device_gib > planned(tuning=usual, zero_stage=zero).memory.device_gib


def test_larger_adapters_take_longer() -> None:
    slow, fast = (planned("lora", Tuning(lora_rank=rank)).step.seconds for rank in (1024, 8))
    assert slow > fast


def test_evaluation_is_warned_of_only_where_it_takes_larger_batches() -> None:
    """A trainer that evaluates in batches of the micro batch needs no more than training."""

    def warned(plan: Plan) -> tuple[bool, bool]:
        said = any("evaluation" in name for name in plan.memory.not_modelled)
        return said, "finetune-evaluation" in {r.rule for r in plan.reasons}

    assert warned(planned()) == (True, True)
    assert warned(planned(tuning=Tuning(eval_batch_size=None))) == (False, False)
    assert warned(planned(tuning=Tuning(eval_batch_size=2))) == (True, True)
    assert warned(planned(tuning=Tuning(eval_batch_size=1))) == (False, False)
    assert warned(planned(micro_batch_size=EVAL_BATCH, global_batch_size=4 * EVAL_BATCH)) == (False, False)


def test_a_search_ranks_by_the_job_as_it_is() -> None:
    """Huge adapters do not fit where small ones do, and then the search says so."""
    card: dict[str, Any] = {**SMALL, "gpu": "a10g", "trainer": "qlora"}
    small = search(request(**card, tuning=Tuning(lora_rank=16)))
    huge = search(request(**card, tuning=Tuning(lora_rank=2048)))
    assert small.plans
    assert all(p.layout.zero_stage == 3 for p in huge.plans)
    assert huge.rejected_count > small.rejected_count
    data = json.loads(json.dumps(plan_json(request(**card), small), allow_nan=False))
    assert len(data["plans"]) == len(small.plans)


@pytest.mark.parametrize("gpu", ["a10g", "l4", "a100-40", "h200"])
@pytest.mark.parametrize("trainer", ["qlora", "lora"])
def test_one_gpu_takes_deepspeed_only_where_it_must(gpu: str, trainer: str) -> None:
    """There is nothing to split; it only turns tables back to 16 bits, and is one more package."""
    plans = search(request("qwen3-8b", 1, gpu, trainer=trainer, seq_length=1536, top=50)).plans
    if any(p.layout.zero_stage == 0 and (p.memory.oom_probability or 0) < 0.02 for p in plans):
        assert plans[0].layout.zero_stage == 0
    assert {p.layout.zero_stage for p in plans} >= {2}
