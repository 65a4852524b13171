"""`gpt-tune plan PROFILE` and `estimate PROFILE`: a profile's own question, with options over it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome, Run

QLORA = "qlora-qwen3-8b"
SAME = ("--fix", "zero_stage=0", "--fix", "micro_batch_size=1", "--fix", "recompute=full")


def planned(gpt_tune: Run, *arguments: str) -> dict[str, Any]:
    done = gpt_tune("plan", *arguments, "--json")
    assert done.code == 0, done.out + done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def saved(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_fine_tuning_profile_is_planned_by_its_own_settings(gpt_tune: Run, tmp_path: Path) -> None:
    data = planned(gpt_tune, QLORA, "--gpu", "h200", "--top", "30")
    assert data["model"]["id"] == "qwen3-8b"
    assert (data["model"]["seq_length"], data["gpus"]) == (1536, 8)
    assert {p["trainer"]["name"] for p in data["plans"]} == {"qlora"}
    assert {p["layout"]["zero_stage"] for p in data["plans"]} == {0, 2, 3}
    assert {p["layout"]["global_batch_size"] for p in data["plans"]} == {32}
    small, huge = (
        planned(gpt_tune, QLORA, "--gpu", "h200", "--set", f"finetune.lora_rank={rank}", *SAME)["plans"][0]
        for rank in (8, 512)
    )
    assert huge["memory"]["device_gib"] > small["memory"]["device_gib"] + 1
    wide = planned(gpt_tune, QLORA, "--gpu", "h200", "--set", "finetune.base_weights=16bit")
    assert wide["plans"][0]["trainer"]["name"] == "lora"


def test_options_are_over_the_profile(gpt_tune: Run, tmp_path: Path) -> None:
    mine = saved(
        tmp_path,
        'recipe = "qlora"\n[resources]\ngpu = "a100-80g"\ngpus = 4\n'
        '[finetune]\nweights = "Qwen/Qwen3-8B"\ndata = "some/data"\nstrategy = "zero3"\nmicro_batch_size = 2\n',
    )
    own = planned(gpt_tune, mine)["plans"][0]
    assert (own["layout"]["zero_stage"], own["layout"]["micro_batch_size"]) == (3, 2)
    assert own["layout"]["global_batch_size"] == 32
    data = planned(
        gpt_tune,
        mine,
        "--gpu",
        "h100",
        "--gpus",
        "16",
        "--seq-length",
        "512",
        "--fix",
        "zero_stage=0",
        "--model",
        "qwen3-4b",
    )
    assert (data["gpus"], data["model"]["id"], data["model"]["seq_length"]) == (16, "qwen3-4b", 512)
    assert {p["layout"]["zero_stage"] for p in data["plans"]} == {0}
    assert {p["layout"]["micro_batch_size"] for p in data["plans"]} == {2}
    assert (
        planned(gpt_tune, mine, "--global-batch-size", "64")["plans"][0]["layout"]["global_batch_size"] == 64
    )
    several = planned(gpt_tune, mine, "--global-batch-size", "32,64")["plans"]
    assert {p["layout"]["global_batch_size"] for p in several} == {32, 64}


def test_a_pretraining_profile_is_planned_too(gpt_tune: Run, tmp_path: Path) -> None:
    mine = saved(
        tmp_path,
        'recipe = "megatron-lm"\n[resources]\ngpu = "h100"\ngpus = 8\n[model]\nid = "gpt-1.3b"\n'
        "[layout.fixed]\ntensor_parallel = 2\n[training]\nglobal_batch_size = 64\n",
    )
    by_options = ("--model", "gpt-1.3b", "--gpus", "8", "--gpu", "h100", "--trainer", "megatron-lm",
                  "--global-batch-size", "64", "--fix", "tensor_parallel=2", "--dropout", "0")  # fmt: skip
    mine_plans, theirs = planned(gpt_tune, mine)["plans"], planned(gpt_tune, *by_options)["plans"]
    assert [p["layout"] for p in mine_plans] == [p["layout"] for p in theirs]
    assert planned(gpt_tune, mine, "--fix", "tensor_parallel=4")["plans"][0]["layout"]["tensor_parallel"] == 4


def test_one_layout_of_a_profile_is_estimated(gpt_tune: Run) -> None:
    done = gpt_tune(
        "estimate", QLORA, "--gpu", "h200", "--fix", "zero_stage=2", "--fix", "micro_batch_size=4", "--json"
    )
    assert done.code == 0
    data = json.loads(done.out)
    assert data["legal"]
    assert (data["plan"]["layout"]["zero_stage"], data["plan"]["layout"]["micro_batch_size"]) == (2, 4)
    bad = json.loads(gpt_tune("estimate", QLORA, "--gpu", "h200", "--fix", "zero_stage=1", "--json").out)
    assert not bad["legal"]
    assert bad["problems"][0]["rule"] == "zero-unsupported"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((QLORA,), "Nothing says which GPUs"),
        (("smoke", "--gpu", "h200"), "smoke has no layout"),
        (("nothing-of-this-name", "--gpu", "h200"), "nothing-of-this-name"),
        ((QLORA, "--gpu", "h200", "--trainer", "lora"), "recipe"),
        (
            (QLORA, "--gpu", "h200", "--set", "model.id=gpt-1.3b", "--set", "finetune.weights=x/y"),
            "shape of 'x/y'",
        ),
        ((QLORA, "--gpu", "h200", "--set", "finetune.lora_targets=c_attn"), "c_attn"),
        (
            (QLORA, "--gpu", "h200", "--set", "model.id=gpt-1.3b", "--set", "finetune.weights="),
            "weights is empty",
        ),
        ((QLORA, "--gpu", "h200", "--set", "finetune.micro_batch_size=0"), "micro_batch_size"),
        ((QLORA, "--gpu", "h200", "--set", "finetune.gradient_accumulation_steps=-3"), "accumulation"),
        ((QLORA, "--gpu", "h200", "--set", "finetune.lora_rank=0"), "lora_rank is 0"),
        ((QLORA, "--gpu", "h200", "--global-batch-size", "33"), "32"),
        ((QLORA, "--gpu", "h200", "--gpus", "63"), "64"),
        ((QLORA, "--gpu", "h200", "--fix", "zero_stag=1"), "zero_stage"),
        (("--model", "gpt-1.3b", "--gpus", "8", "--gpu", "h100", "--set", "model.id=x"), "--set"),
        (("--model", "gpt-1.3b", "--gpu", "h100"), "--gpus"),
        (("--gpus", "8", "--gpu", "h100"), "--model"),
    ],
)
def test_what_cannot_be_is_one_sentence(gpt_tune: Run, arguments: tuple[str, ...], words: str) -> None:
    done = gpt_tune("plan", *arguments)
    assert done.code == 2
    assert words in done.err
    assert done.out == ""
    assert "Traceback" not in done.err


# -- submitting -----------------------------------------------------------------------------------
def dry(gpt_tune: Run, *changes: str) -> Outcome:
    wanted = [word for change in changes for word in ("--set", change)]
    return gpt_tune("submit", QLORA, "--dry-run", "--json", "--set", "cluster=local", *wanted)


def test_without_gpus_a_job_is_made_as_before(gpt_tune: Run) -> None:
    done = dry(gpt_tune, "resources.gpus=2")
    assert done.code == 0, done.err
    data = json.loads(done.out)
    assert data["plan"] is None
    assert any("no GPU" in w for w in data["warnings"])
    assert "plan.json" not in data["files"]
    assert dry(gpt_tune, "resources.gpus=2", "resources.gpu=h200").code == 0, (
        "a GPU type that is not here changes nothing"
    )


def test_a_rendered_job_of_a_cluster_elsewhere_is_planned(gpt_tune: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = gpt_tune("render", QLORA, "--out", str(out), "--set", "cluster=far", "--set", "resources.node=p5en",
                    "--set", "resources.gpus=16", "--set", "site.run_root=/shared/runs")  # fmt: skip
    assert done.code == 0, done.err
    plan = json.loads((out / "plan.json").read_text())
    read = json.loads((out / "finetune.json").read_text())
    assert plan["layout"]["data_parallel"] == 16
    assert read["micro_batch_size"] == plan["layout"]["micro_batch_size"]
    assert read["gradient_accumulation_steps"] == plan["layout"]["gradient_accumulation_steps"]
    assert read["gradient_checkpointing"] == (plan["layout"]["recompute"]["granularity"] == "full")
    assert "expected step" in (out / "README.md").read_text()


def test_fine_tuning_layouts_are_said_in_its_own_words(gpt_tune: Run) -> None:
    told = gpt_tune(
        "estimate", QLORA, "--gpu", "h200", "--fix", "zero_stage=2", "--fix", "micro_batch_size=2"
    ).out
    assert "ZeRO-2, 8 GPUs, micro batch 2 x 2, no checkpointing" in told
    small = gpt_tune("plan", QLORA, "--gpu", "a10g", "--gpus", "1").out
    assert "DDP, 1 GPU, micro batch" in small
    assert "TP 1" not in small
    # A split that these trainers do not have is named as what it is.
    assert "TP 2" in gpt_tune("estimate", QLORA, "--gpu", "h200", "--fix", "tensor_parallel=2").out
