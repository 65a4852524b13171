"""Owns tests of the JSON of `plan` and `estimate`: the keys of the contract, and numbers JSON can hold."""

from __future__ import annotations

import json

import pytest

from gpt_tune.planner import estimate, estimate_json, plan_json, search
from tests.planner.support import request

MEMORY = {
    "allocated_gib",
    "reserved_gib",
    "device_gib",
    "low_gib",
    "high_gib",
    "limit_gib",
    "oom_probability",
    "peak_phase",
    "stages",
    "not_modelled",
}
STAGE = {
    "stage",
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "buffers",
    "transient",
    "reserved_gap",
    "context",
    "total",
}
PARTS = {
    "compute",
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "pipeline_bubble",
    "pipeline_p2p",
    "data_parallel",
    "optimizer",
    "other",
}
STEP = PARTS | {
    "seconds",
    "low",
    "high",
    "model_tflops",
    "hardware_tflops",
    "mfu",
    "hfu",
    "tokens_per_second_per_gpu",
}
LAYOUT = {
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_pipeline",
    "context_parallel",
    "context_method",
    "expert_parallel",
    "data_parallel",
    "sequence_parallel",
    "zero_stage",
    "micro_batch_size",
    "gradient_accumulation_steps",
    "global_batch_size",
    "recompute",
    "precision",
    "flash_attention",
    "fusions",
}
MODEL = {
    "id",
    "parameters",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "ffn",
    "vocab",
    "padded_vocab",
    "seq_length",
    "notes",
}


def test_plan() -> None:
    asked = request("aws-gpt-103b", global_batch_size=64)
    data = json.loads(json.dumps(plan_json(asked, search(asked)), allow_nan=False))
    assert data["schema"] == "gpt-tune/plan/1"
    assert {"model", "gpus", "searched", "seconds", "plans", "rejected", "rejected_count"} <= set(data)
    assert set(data["model"]) >= MODEL
    assert data["model"]["id"] == "gpt-145b"
    assert data["model"]["parameters"] == 145_610_674_176
    assert any("103B" in n for n in data["model"]["notes"])
    best = data["plans"][0]
    assert data["model"]["padded_vocab"] % (128 * best["layout"]["tensor_parallel"]) == 0
    assert {"rank", "trainer", "layout", "memory", "step", "reasons", "environment"} <= set(best)
    assert {"name", "version", "deepspeed", "gradient_accumulation_dtype"} <= set(best["trainer"])
    assert set(best["layout"]) >= LAYOUT
    assert set(best["layout"]["recompute"]) == {"granularity", "method", "layers"}
    assert set(best["memory"]) >= MEMORY
    assert set(best["step"]) >= STEP
    assert all(set(r) >= {"rule", "text", "source"} for r in best["reasons"])
    assert all(set(r) >= {"layout", "rule", "text", "fix"} for r in data["rejected"])
    assert all(set(r["layout"]) >= LAYOUT for r in data["rejected"])


def test_plan_parts_add_up() -> None:
    asked = request(fix=["pipeline_parallel=8"])
    for plan in plan_json(asked, search(asked))["plans"]:
        step = plan["step"]
        assert sum(step[p] for p in PARTS) == pytest.approx(step["seconds"], rel=1e-9)
        assert step["low"] <= step["seconds"] <= step["high"]
        memory = plan["memory"]
        assert [s["stage"] for s in memory["stages"]] == list(range(plan["layout"]["pipeline_parallel"]))
        worst = max(memory["stages"], key=lambda s: s["total"])
        assert worst["total"] == pytest.approx(memory["device_gib"])
        for stage in memory["stages"]:
            assert set(stage) >= STAGE
            outside = ("stage", "total", "reserved_gap", "context")
            inside = sum(v for k, v in stage.items() if k in STAGE and k not in outside)
            assert inside + stage["reserved_gap"] + stage["context"] == pytest.approx(stage["total"])


def test_estimate() -> None:
    asked = request(fix=["tensor_parallel=8", "pipeline_parallel=4", "zero_stage=2"])
    data = json.loads(json.dumps(estimate_json(asked, estimate(asked)), allow_nan=False))
    assert data["schema"] == "gpt-tune/estimate/1"
    assert data["legal"] is False
    assert {"rule", "text", "fix"} <= set(data["problems"][0])
    assert data["plan"]["layout"]["zero_stage"] == 2
    impossible = request(fix=["pipeline_parallel=128"])
    assert estimate_json(impossible, estimate(impossible))["plan"] is None


def test_nothing_fits_is_still_a_plan_object() -> None:
    asked = request("gpt-1t", 8, "a100")
    data = json.loads(json.dumps(plan_json(asked, search(asked)), allow_nan=False))
    assert data["plans"] == []
    assert data["rejected"]
    assert data["model"]["padded_vocab"] == 50304
