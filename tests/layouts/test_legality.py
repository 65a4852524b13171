"""Owns tests of legality: every rule fails on its case, passes once mended, and agrees with itself in a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_tune.layouts import choices
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout, Recompute, Trainer
from gpt_tune.layouts.legality import ALL_RULES, RULES, WARNINGS, broken, legal, problems, warnings
from tests.layouts.support import layout, layouts, setting

FULL = Recompute("full", "uniform", 1)
BLOCK = Recompute("full", "block", 2)
OLD = Trainer(deepspeed="0.11.0")
NO_ENGINE = Trainer(pipeline_engine=False)
FP32_NEW = Trainer(deepspeed="0.18.5", gradient_accumulation_dtype="fp32")

# rule -> (keys of the layout, keys of the setting)
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("gpus", {"tensor_parallel": 8, "data_parallel": 4}, {}),
    ("gpus", {"tensor_parallel": 3, "data_parallel": 21}, {}),
    ("heads-tp", {"tensor_parallel": 64}, {}),
    ("heads-tp", {"tensor_parallel": 2}, {"model": "gpt2-xl"}),
    ("kv-heads-tp", {"tensor_parallel": 16}, {"model": "llama-3-70b"}),
    ("ffn-tp", {"tensor_parallel": 4}, {"model": "layers=4,hidden=64,heads=4,ffn=30"}),
    ("stages-layers", {"pipeline_parallel": 32}, {"model": "gpt-1.3b"}),
    ("global-batch", {"tensor_parallel": 8, "micro_batch_size": 3}, {}),
    ("global-batch", {"tensor_parallel": 8, "gradient_accumulation_steps": 5}, {}),
    ("sp-seq", {"tensor_parallel": 8, "sequence_parallel": True}, {"seq_length": 2047}),
    ("experts-ep", {"expert_parallel": 2}, {}),
    ("experts-ep", {"expert_parallel": 16}, {"model": "mixtral-8x7b"}),
    (
        "ranks-ep",
        {"expert_parallel": 8, "tensor_parallel": 8, "pipeline_parallel": 2},
        {"model": "mixtral-8x7b"},
    ),
    ("degree-unsupported", {"tensor_parallel": 2}, {"trainer": "deepspeed"}),
    ("degree-unsupported", {"pipeline_parallel": 2}, {"trainer": "deepspeed"}),
    ("degree-unsupported", {"context_parallel": 2, "context_method": "ring"}, {"trainer": "deepspeed"}),
    ("zero-unsupported", {"zero_stage": 2}, {"trainer": "megatron-lm"}),
    ("zero-unsupported", {"zero_stage": 0}, {"trainer": "fsdp"}),
    ("zero-pipeline", {"zero_stage": 2, "pipeline_parallel": 4}, {}),
    ("zero-pipeline", {"zero_stage": 3, "pipeline_parallel": 2, "tensor_parallel": 8}, {}),
    ("zero-engine", {"zero_stage": 2}, {"trainer": Trainer(pipeline_engine=True)}),
    ("no-pipeline-stages", {"pipeline_parallel": 2}, {"trainer": NO_ENGINE}),
    ("virtual-unsupported", {"pipeline_parallel": 4, "virtual_pipeline": 2}, {}),
    ("virtual-alone", {"virtual_pipeline": 2}, {"trainer": "megatron-lm"}),
    ("stages-even", {"pipeline_parallel": 32}, {"trainer": "megatron-lm"}),
    ("stages-even", {"pipeline_parallel": 4, "virtual_pipeline": 3}, {"trainer": "megatron-lm"}),
    (
        "virtual-batches",
        {
            "pipeline_parallel": 4,
            "virtual_pipeline": 2,
            "tensor_parallel": 1,
            "gradient_accumulation_steps": 2,
            "micro_batch_size": 2,
        },
        {"trainer": "megatron-lm"},
    ),
    ("context-method", {"context_parallel": 2, "context_method": "ring"}, {}),
    ("context-method", {"context_parallel": 2}, {}),
    ("ulysses-alone", {"context_parallel": 2, "context_method": "ulysses", "tensor_parallel": 2}, {}),
    ("ulysses-alone", {"context_parallel": 2, "context_method": "ulysses", "pipeline_parallel": 2}, {}),
    ("ulysses-heads", {"context_parallel": 64, "context_method": "ulysses"}, {}),
    (
        "context-seq",
        {"context_parallel": 4, "context_method": "ring"},
        {"trainer": "megatron-lm", "seq_length": 2052},
    ),
    (
        "sp-ulysses",
        {"context_parallel": 2, "context_method": "ulysses", "sequence_parallel": True},
        {},
    ),
    ("sp-no-engine", {"zero_stage": 2, "sequence_parallel": True, "tensor_parallel": 8}, {}),
    ("sp-no-engine", {"zero_stage": 3, "sequence_parallel": True, "tensor_parallel": 2}, {}),
    ("experts-zero3", {"zero_stage": 3}, {"model": "mixtral-8x7b"}),
    ("experts-qlora", {"data_parallel": 64}, {"model": "mixtral-8x7b", "trainer": "qlora"}),
    (
        "experts-sp",
        {"expert_parallel": 2, "tensor_parallel": 2},
        {"model": "mixtral-8x7b", "trainer": "megatron-lm"},
    ),
    ("recompute-unsupported", {"recompute": Recompute("selective"), "zero_stage": 3}, {"trainer": "fsdp"}),
    ("recompute-stray", {"recompute": Recompute("selective", "uniform", None)}, {}),
    ("recompute-stray", {"recompute": Recompute("none", None, 4)}, {}),
    ("recompute-method", {"recompute": Recompute("full")}, {}),
    ("recompute-no-layers", {"recompute": Recompute("full", "uniform", None)}, {}),
    ("recompute-method-unsupported", {"recompute": BLOCK, "zero_stage": 3}, {"trainer": "deepspeed"}),
    ("recompute-block-ignored", {"recompute": BLOCK}, {}),
    ("recompute-layers", {"recompute": Recompute("full", "uniform", 11), "pipeline_parallel": 8}, {}),
    (
        "recompute-chunks",
        {"recompute": Recompute("full", "block", 3), "pipeline_parallel": 8, "virtual_pipeline": 2},
        {"trainer": "megatron-lm"},
    ),
    ("precision-unsupported", {"precision": "fp8"}, {"trainer": "deepspeed"}),
    ("flash-precision", {"precision": "fp32"}, {}),
    ("flash-head", {}, {"model": "layers=4,hidden=1280,heads=4"}),
    ("flash-head", {}, {"model": "layers=4,hidden=48,heads=4"}),
    ("flash-gpu", {}, {"gpu": "v100"}),
    ("bf16-gpu", {}, {"gpu": "v100"}),
    ("fp8-gpu", {"precision": "fp8"}, {"gpu": "a100"}),
    ("fp8-gqa", {"precision": "fp8"}, {"model": "llama-3-8b"}),
    ("ds-bf16-accum", {}, {"trainer": Trainer(pipeline_engine=False, gradient_accumulation_dtype="bf16")}),
    ("ds-accum-mix", {}, {"trainer": FP32_NEW}),
    ("ds-accum-mix", {"precision": "fp16"}, {"trainer": Trainer(gradient_accumulation_dtype="fp32")}),
    ("ds-bf16-zero1-old", {"zero_stage": 1}, {"trainer": OLD}),
    (
        "ulysses-version",
        {"context_parallel": 2, "context_method": "ulysses"},
        {"trainer": Trainer(deepspeed="0.10.1")},
    ),
]
AVOIDED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("sp-tp1", {"sequence_parallel": True}, {}),
    (
        "recompute-virtual",
        {
            "recompute": Recompute("full", "uniform", 4),
            "pipeline_parallel": 8,
            "virtual_pipeline": 5,
            "zero_stage": 1,
        },
        {"trainer": "megatron-lm"},
    ),
    ("selective-flash", {"recompute": Recompute("selective")}, {}),
    ("recompute-block-engine", {"recompute": BLOCK, "zero_stage": 3}, {}),
]


def name_of(case: Any) -> str:
    return str(case) if isinstance(case, str) else ""


@pytest.mark.parametrize(("rule", "keys", "where"), CASES, ids=name_of)
def test_each_rule_stops_its_case(rule: str, keys: dict[str, Any], where: dict[str, Any]) -> None:
    place, x = setting(**where), layout(**keys)
    found = {v.rule: v for v in problems(x, place)}
    assert rule in found, f"only {sorted(found)}"
    assert found[rule].text.endswith(".")
    assert found[rule].fix
    assert not legal(LayoutBatch.of([x]), place)[0]


@pytest.mark.parametrize(("rule", "keys", "where"), CASES, ids=name_of)
def test_the_fix_mends_the_rule(rule: str, keys: dict[str, Any], where: dict[str, Any]) -> None:
    """A fix of the form KEY=VALUE, put in (with what follows from it), leaves that rule unbroken."""
    place, x = setting(**where), layout(**keys)
    fix = next(v.fix for v in problems(x, place) if v.rule == rule)
    key, _, rest = fix.partition("=")
    value = rest.split(" ")[0].rstrip(",")
    if key not in choices.CHOICES or not value:
        # The others are a change of the request (GPUs, sequence length) or of the trainer.
        assert not key.isidentifier() or key == "gradient_accumulation_dtype", fix
        return
    fixed = choices.parse_fix([f"{key}={value}"])
    mended = choices.apply(x, fixed)
    if key in ("tensor_parallel", "pipeline_parallel", "context_parallel") and rule != "gpus":
        split = mended.tensor_parallel * mended.pipeline_parallel * mended.context_parallel
        mended = replace(mended, data_parallel=max(1, place.gpus // split))
    if key == "micro_batch_size":
        steps = max(1, mended.global_batch_size // (mended.data_parallel * mended.micro_batch_size))
        mended = replace(mended, gradient_accumulation_steps=steps)
    if mended.recompute.granularity != "full":
        mended = replace(mended, recompute=Recompute(mended.recompute.granularity))
    if key == "tensor_parallel" and rule == "gpus":
        mended = replace(
            mended, data_parallel=place.gpus // (mended.tensor_parallel * mended.pipeline_parallel)
        )
    assert rule not in {v.rule for v in problems(mended, place)}, fix


@pytest.mark.parametrize(("rule", "keys", "where"), AVOIDED, ids=name_of)
def test_legal_but_better_left(rule: str, keys: dict[str, Any], where: dict[str, Any]) -> None:
    place, x = setting(**where), layout(**keys)
    assert problems(x, place) == ()
    assert rule in {v.rule for v in warnings(x, place)}


def test_every_rule_has_a_case() -> None:
    assert {r.id for r in RULES} == {rule for rule, _, _ in CASES}
    assert {r.id for r in WARNINGS} == {rule for rule, _, _ in AVOIDED}
    assert len({r.id for r in ALL_RULES}) == len(ALL_RULES)
    assert all(r.source for r in ALL_RULES)


LEGAL: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"tensor_parallel": 8, "pipeline_parallel": 8}, {}),
    ({"tensor_parallel": 8, "pipeline_parallel": 2, "zero_stage": 1}, {}),
    ({"tensor_parallel": 4, "zero_stage": 3}, {}),
    ({"tensor_parallel": 8, "zero_stage": 2, "micro_batch_size": 2}, {}),
    ({"tensor_parallel": 8, "pipeline_parallel": 4, "recompute": FULL}, {"model": "gpt-103b"}),
    ({"context_parallel": 8, "context_method": "ulysses", "zero_stage": 3}, {}),
    ({"tensor_parallel": 2, "sequence_parallel": True, "pipeline_parallel": 4}, {"model": "llama-3-8b"}),
    (
        {"pipeline_parallel": 4, "virtual_pipeline": 5, "recompute": Recompute("full", "block", 10)},
        {"trainer": "megatron-lm"},
    ),
    ({"pipeline_parallel": 16}, {"trainer": "megatron-lm", "model": "llama-3.1-405b"}),
    ({"context_parallel": 4, "context_method": "ring", "tensor_parallel": 8}, {"trainer": "megatron-lm"}),
    ({"zero_stage": 3}, {"trainer": "fsdp"}),
    ({"zero_stage": 2}, {"trainer": "deepspeed"}),
    ({"expert_parallel": 8}, {"model": "mixtral-8x7b"}),
    ({}, {"trainer": Trainer(deepspeed="0.18.4", gradient_accumulation_dtype="fp32")}),
    ({}, {"trainer": Trainer(deepspeed="0.17.6", pipeline_engine=False)}),
    ({"zero_stage": 1}, {"trainer": Trainer(deepspeed="0.11.2")}),
    ({"zero_stage": 1}, {"trainer": Trainer(deepspeed="0.11.0", gradient_accumulation_dtype="fp32")}),
    ({"precision": "fp16", "zero_stage": 1}, {"trainer": Trainer(gradient_accumulation_dtype="fp32")}),
    ({"precision": "fp8", "tensor_parallel": 8}, {}),
]


@pytest.mark.parametrize(("keys", "where"), LEGAL, ids=str)
def test_legal_layouts(keys: dict[str, Any], where: dict[str, Any]) -> None:
    assert problems(layout(**keys), setting(**where)) == ()


SETTINGS = [
    setting(),
    setting("llama-3-70b", trainer="megatron-lm"),
    setting("mixtral-8x7b", gpus=8),
    setting("llama-3.1-8b", trainer="fsdp", gpus=16),
    setting("gpt-1.3b", trainer="megatron-deepspeed@deepspeed-0.19.5", gpus=8),
]


@given(st.lists(layouts, min_size=1, max_size=20), st.sampled_from(SETTINGS))
@settings(max_examples=100)
def test_batch_and_single_agree(many: list[Layout], place: Any) -> None:
    batch = LayoutBatch.of(many)
    count, first = broken(batch, place)
    for i, x in enumerate(many):
        alone, alone_first = broken(LayoutBatch.of([x]), place)
        assert (count[i], first[i]) == (alone[0], alone_first[0])
        found = problems(x, place)
        assert bool(found) == (count[i] > 0)
        for violation in (*found, *warnings(x, place)):
            assert violation.text.strip()
            assert violation.fix.strip()


@given(st.lists(layouts, min_size=1, max_size=5))
def test_rows_come_back_as_they_went_in(many: list[Layout]) -> None:
    batch = LayoutBatch.of(many)
    assert [batch.row(i) for i in range(len(batch))] == many
    assert batch.take(np.array([0])).row(0) == many[0]
