"""Owns tests of best practices: each fires on its case, in words with numbers, and stays silent otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_tune import rules
from gpt_tune.layouts import legality
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.planner import build_request, estimate, search
from gpt_tune.planner.evaluate import Evaluator
from gpt_tune.rules import Situation
from gpt_tune.words import seconds_words

TP8 = "tensor_parallel=8"
# practice -> request keys whose estimated layout it applies to
CASES: dict[str, dict[str, Any]] = {
    "memory-binding": {"fix": [TP8]},
    "time-binding": {"fix": [TP8]},
    "oom-risk": {"fix": []},
    "cached-memory": {
        "model": "gpt-1.3b",
        "gpus": 1,
        "gpu": "a100-40",
        "fix": ["zero_stage=1", "micro_batch_size=2"],
    },
    "headroom": {"fix": [TP8, "pipeline_parallel=8"]},
    "recompute-none": {"fix": [TP8]},
    "recompute-full": {"fix": [TP8, "recompute=full"]},
    "recompute-selective": {"fix": [TP8, "recompute=selective"]},
    "zero-dp1": {"fix": [TP8, "pipeline_parallel=8"]},
    "zero0-shards": {"fix": [TP8, "pipeline_parallel=4"]},
    "zero-shards": {"fix": [TP8, "zero_stage=1"]},
    "bf16-accumulation": {"fix": [TP8, "zero_stage=1"], "global_batch_size": 64},
    "fp32-accumulation": {"fix": [TP8, "pipeline_parallel=8"], "global_batch_size": 64},
    "logits-large": {"model": "gemma-2b", "gpus": 1, "fix": ["micro_batch_size=8"]},
    "bubble-share": {"fix": [TP8, "pipeline_parallel=8"], "global_batch_size": 64},
    "bubble-large": {"fix": [TP8, "pipeline_parallel=8"], "global_batch_size": 16},
    "pipeline-not-a-law": {"fix": [TP8]},
    "stages-uneven": {"model": "gpt-103b", "fix": [TP8, "pipeline_parallel=8"]},
    "stages-ends-counted": {
        "model": "llama-3.1-405b",
        "trainer": "megatron-lm",
        "fix": [TP8, "pipeline_parallel=8"],
    },
    "tp-within-node": {"fix": [TP8]},
    "tp-across-nodes": {"fix": ["tensor_parallel=16"]},
    "pp-across-nodes": {"fix": [TP8, "pipeline_parallel=8"]},
    "dp-exposed": {"model": "gpt-13b", "fix": ["tensor_parallel=1"], "global_batch_size": 64},
    "head-size-8": {"model": "gpt-103b-wide", "fix": [TP8, "flash_attention=false"]},
    "head-size-64": {"model": "megatron-8.3b", "fix": [TP8]},
    "gemm-slices": {"model": "layers=24,hidden=2048,heads=16,ffn=5464", "fix": [TP8]},
    "vocab-padding": {"fix": [TP8]},
    "sp-needs-cdmc": {"model": "llama-3-8b", "fix": [TP8, "sequence_parallel=true"]},
    "tp-needs-cdmc": {"trainer": "megatron-lm", "fix": [TP8]},
    "sp-saves": {"model": "llama-3-8b", "fix": [TP8, "sequence_parallel=true"]},
    "sp-learned-positions": {"model": "gpt-13b", "fix": [TP8, "sequence_parallel=true"]},
    "sp-pipe-partitioned": {
        "model": "llama-3-8b",
        "fix": [TP8, "sequence_parallel=true", "pipeline_parallel=2"],
    },
    "moe-pipe-partitioned": {"model": "mixtral-8x7b", "fix": [TP8, "pipeline_parallel=2"]},
    "no-pipeline-engine": {"fix": [TP8, "zero_stage=2"]},
    "fused-softmax": {"fix": [TP8, "flash_attention=false"], "seq_length": 8192},
    "fused-softmax-new-gpu": {"fix": [TP8, "flash_attention=false"]},
    "trainer-lacks": {"model": "qwen3-8b", "fix": []},
    "fusion-needs-apex": {"fix": [TP8, "fusions.gradient_accumulation=true"]},
    "expandable-segments": {"trainer": Trainer(expandable_segments=True), "fix": [TP8]},
    "gqa-printed-tflops": {"model": "llama-3-8b", "fix": []},
    "finetune-rough-time": {"trainer": "lora", "model": "llama-3-8b", "fix": []},
    "finetune-strategy": {"trainer": "lora", "model": "llama-3-8b", "fix": ["zero_stage=2"]},
    "finetune-host-bound": {"trainer": "qlora", "model": "qwen3-8b", "gpus": 1, "seq_length": 512, "fix": []},
    "finetune-evaluation": {"trainer": "qlora", "model": "qwen3-8b", "gpus": 1, "fix": []},
    "qlora-zero3": {"trainer": "qlora", "model": "qwen3-8b", "fix": ["zero_stage=3"]},
}


def situation(**keys: Any) -> Situation:
    asked = build_request(**{"model": "gpt-145b", "gpus": 64, "gpu": "p6-b200", **keys})
    plan = estimate(asked).plan
    assert plan is not None
    return Situation(Evaluator(asked).setting, plan.layout, plan.memory, plan.step)


@pytest.mark.parametrize("practice", rules.PRACTICES, ids=lambda p: p.id)
def test_each_practice_fires_on_its_case(practice: rules.Practice) -> None:
    case = situation(**CASES[practice.id])
    assert practice.when(case)
    text = practice.words(case)
    assert not text[0].islower()
    assert text.endswith(".")
    assert "None" not in text
    assert practice.source
    assert practice.id in {a.rule for a in rules.advice(case)}


# What a plain, comfortable layout must not be told.
SILENT = {
    "oom-risk",
    "stages-uneven",
    "bubble-large",
    "tp-across-nodes",
    "head-size-8",
    "head-size-64",
    "gemm-slices",
    "sp-needs-cdmc",
    "sp-pipe-partitioned",
    "fused-softmax",
    "fused-softmax-new-gpu",
    "no-pipeline-engine",
    "recompute-full",
    "bf16-accumulation",
    "zero-shards",
    "expandable-segments",
    "trainer-lacks",
    "fusion-needs-apex",
}


def test_a_plain_layout_is_not_warned() -> None:
    case = situation(fix=[TP8, "pipeline_parallel=8"], global_batch_size=64)
    told = {a.rule for a in rules.advice(case)}
    assert not told & SILENT
    assert not [a for a in rules.advice(case) if a.severity == "warn"]
    assert rules.environment(case) == {}


def test_warnings_come_before_notes() -> None:
    case = situation(model="gpt-103b", fix=[TP8, "pipeline_parallel=8", "sequence_parallel=true"])
    found = rules.advice(case)
    assert [a.rule for a in found[:2]] == ["memory-binding", "time-binding"]
    severities = [a.severity for a in found[2:]]
    assert severities == sorted(severities, key=("warn", "explain", "note").index)
    assert "sp-learned-positions" in {a.rule for a in found}


def test_environment_of_sequence_parallelism() -> None:
    case = situation(model="llama-3-8b", fix=[TP8, "sequence_parallel=true"])
    assert rules.environment(case) == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


@pytest.mark.parametrize(
    ("model", "lacking"),
    [
        ("bloom-7b1", ("ALiBi", "norm behind the embedding")),
        ("qwen2.5-7b", ("biases on query",)),
        ("qwen3-8b", ("query and key",)),
        ("gemma-2-9b", ("four norms",)),
        ("qwen1.5-moe-a2.7b", ("shared experts",)),
    ],
)
def test_what_the_trainer_lacks_for_a_model(model: str, lacking: tuple[str, ...]) -> None:
    found = {a.rule: a.text for a in rules.advice(situation(model=model))}
    assert all(word in found["trainer-lacks"] for word in lacking)
    other = {a.rule for a in rules.advice(situation(model=model, trainer="megatron-lm"))}
    assert "trainer-lacks" not in other


@pytest.mark.parametrize(
    "model", ["gpt-145b", "llama-3-8b", "mixtral-8x7b", "nemotron-4-15b", "gpt-neox-20b"]
)
def test_plain_families_lack_nothing(model: str) -> None:
    assert "trainer-lacks" not in {a.rule for a in rules.advice(situation(model=model))}


def test_the_bubble_is_the_textbooks() -> None:
    case = situation(fix=[TP8, "pipeline_parallel=8"], global_batch_size=64)
    assert case.bubble == pytest.approx(7 / 71)
    text = next(a.text for a in rules.advice(case) if a.rule == "bubble-share")
    assert "9.9%" in text


def test_the_catalogue_lists_every_rule_once_with_its_source() -> None:
    entries = rules.catalogue()
    ids = [e.id for e in entries]
    assert len(ids) == len(set(ids))
    assert {r.id for r in legality.ALL_RULES} | {p.id for p in rules.PRACTICES} == {e.id for e in entries}
    assert all(e.source for e in entries)


def test_maximising_the_pipeline_is_no_law() -> None:
    """With a small batch the bubble decides against many stages, although PP 8 is the seed's choice."""
    asked = build_request("gpt-13b", 64, gpu="p6-b200", global_batch_size=64)
    assert search(asked).plans[0].layout.pipeline_parallel < 8
    assert isinstance(search(asked).plans[0].layout, Layout)


def test_the_bubble_in_words_is_that_of_the_step() -> None:
    """One micro batch through two stages idles half of their time, not half of a step that reduces gradients, too."""
    case = situation(
        model="gpt-760m", gpus=64, gpu="mi300x-8", global_batch_size=96,
        fix=["pipeline_parallel=2", "micro_batch_size=3"],
    )  # fmt: skip
    text = next(a.text for a in rules.advice(case) if a.rule == "bubble-large")
    assert "1 micro batch idle 50.0% of their time" in text
    assert text.endswith(f"{seconds_words(case.step.pipeline_bubble)} a step.")


def test_what_binds_time_may_be_the_host() -> None:
    case = situation(model="qwen3-0.6b", gpus=1, gpu="h200", trainer="qlora", fix=["micro_batch_size=1"])
    text = next(a.text for a in rules.advice(case) if a.rule == "time-binding")
    assert case.step.other > case.step.compute
    assert "the largest of the rest is waiting for the host" in text
