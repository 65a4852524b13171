"""Megatron-DeepSpeed for real, on a tiny GPT and the CPU: layouts that must compute the same, started by our job.

GPT_TUNE_MEGATRON names a Megatron-DeepSpeed checkout (4efb479), GPT_TUNE_MEGATRON_PYTHON a virtual environment
with torch, deepspeed, transformers and einops; without both these tests are left out.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import planner, recipes
from gpt_tune.layouts.layout import Trainer
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.schema import Environment, Site, TrainerChoice, Training
from tests.recipes.plans import training_job
from tests.recipes.specs import put
from tests.recipes.test_llama2_real import CHECKOUT, STAND_INS, VENV, losses, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHECKOUT and VENV), reason="GPT_TUNE_MEGATRON and GPT_TUNE_MEGATRON_PYTHON are not set"
    ),
]
LENGTH, BATCH = 64, 8
GPT = ModelShape(
    id="tiny-gpt",
    layers=2,
    hidden=64,
    heads=4,
    kv_heads=4,
    ffn=256,
    vocab=512,
    seq_length=LENGTH,
    head_size=16,
)


def trained(run_dir: Path, fix: dict[str, Any], model: ModelShape = GPT) -> dict[int, float]:
    """Losses by iteration of a rendered job, in 32 bits over gloo."""
    gpus = fix.get("tensor_parallel", 1) * fix.get("pipeline_parallel", 1)
    fixed = {"precision": "fp32", "flash_attention": False, "micro_batch_size": BATCH, "recompute": "none",
             "zero_stage": 0, "fusions.masked_softmax": False, **fix}  # fmt: skip
    request = planner.build_request(
        model, gpus, gpu="h200", fix=fixed, seq_length=LENGTH, global_batch_size=BATCH,
        trainer=Trainer(name="megatron-deepspeed", deepspeed="0.19.8", dropout=0.0),
    )  # fmt: skip
    own = (
        "--distributed-backend",
        "gloo",
        "--make-vocab-size-divisible-by",
        str(128 // fix.get("tensor_parallel", 1)),
    )
    shims = run_dir.parent / "stand-ins"
    shims.mkdir(exist_ok=True)
    (shims / "sitecustomize.py").write_text(STAND_INS)
    variables = {
        "PYTHONPATH": str(shims),
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "LOCAL_SIZE": str(gpus),
    }
    training = Training(iterations=6, learning_rate=1e-3, min_learning_rate=1e-3, lr_warmup_iterations=0)
    spec = training_job(
        run_dir, planner.search(request).plans[0], "gpt-125m", "h200", LENGTH, training,
        profile={"trainer": TrainerChoice(path=CHECKOUT, deepspeed="0.19.8", extra_arguments=own)},
        scheduler="local", site=Site(environment=Environment(kind="venv", path=VENV, variables=variables)),
    )  # fmt: skip
    return losses(run(put(recipes.render(dataclasses.replace(spec, model=model)), run_dir)))


@pytest.mark.parametrize(
    "beside",
    [{}, {"recompute": "full", "micro_batch_size": 2}, {"pipeline_parallel": 2, "micro_batch_size": 2}],
    ids=["alone", "recompute and accumulation", "pipeline"],
)
def test_sequence_parallelism_with_learned_positions_changes_no_loss(
    tmp_path: Path, beside: dict[str, Any]
) -> None:
    """The unmended trainer stops at the positions; with them mended only, losses differ by 1e-3 from step 2 on."""
    two = trained(tmp_path / "tp2", {"tensor_parallel": 2, "sequence_parallel": False, **beside})
    cut = trained(tmp_path / "sp", {"tensor_parallel": 2, "sequence_parallel": True, **beside})
    assert sorted(two) == sorted(cut) == [1, 2, 3, 4, 5, 6]
    for step, loss in two.items():
        assert cut[step] == pytest.approx(loss, abs=5e-5), step


def test_tensor_parallelism_starts_with_the_same_loss(tmp_path: Path) -> None:
    one = trained(tmp_path / "tp1", {})
    two = trained(tmp_path / "tp2", {"tensor_parallel": 2, "sequence_parallel": False})
    assert two[1] == pytest.approx(one[1], abs=0.05)  # other random numbers, the same model
