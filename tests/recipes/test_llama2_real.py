"""The Llama conversion for real, on random weights and the CPU: the public converter and trainer, run by our job.

GPT_TUNE_MEGATRON names a Megatron-DeepSpeed checkout (4efb479), GPT_TUNE_MEGATRON_PYTHON a virtual environment
with torch, deepspeed, transformers, sentencepiece and einops; without both these tests are left out.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import planner, recipes
from gpt_tune.layouts.layout import Trainer
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.schema import Environment, Finetune, Site, TrainerChoice, Training
from tests.recipes.plans import training_job
from tests.recipes.specs import put

CHECKOUT = os.environ.get("GPT_TUNE_MEGATRON", "")
VENV = os.environ.get("GPT_TUNE_MEGATRON_PYTHON", "").removesuffix("/bin/python")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHECKOUT and VENV), reason="GPT_TUNE_MEGATRON and GPT_TUNE_MEGATRON_PYTHON are not set"
    ),
]
HERE = Path(__file__).parent
LENGTH, BATCH = 256, 8
# Parts of the trainer and of DeepSpeed that import packages of their own and are never called here.
STAND_INS = """
import sys, types
for name, things in (
    ("deepspeed.compression.compress", ("init_compression", "redundancy_clean")),
    ("megatron.model.vision.knn_monitor", ("compute_feature_bank",)),
):
    module = types.ModuleType(name)
    for thing in things:
        setattr(module, thing, None)
    sys.modules[name] = module
"""


def tiny(kind: str) -> ModelShape:
    three = kind == "llama3"
    return ModelShape(
        id="tiny-llama", layers=2, hidden=64, heads=4, kv_heads=4 if kind == "4" else 2, ffn=128,
        vocab=384 if three else 320, seq_length=LENGTH, head_size=16, gated_mlp=True, norm="rmsnorm",
        linear_bias=False, qkv_bias=False, positions="rotary", tied_embeddings=False,
        rope_theta=500000.0 if three else 10000.0,
        rope_scaling="llama3 factor=8 low=1 high=4 original=64" if three else "",
    )  # fmt: skip


@pytest.fixture(scope="module", params=["4", "2", "llama3"], ids=["all heads", "grouped", "llama 3.1"])
def weights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp(f"tiny llama {request.param}")
    make = [f"{VENV}/bin/python", str(HERE / "make_tiny_llama.py"), str(folder), request.param]
    subprocess.run(make, check=True, capture_output=True)
    return folder, request.param


def job(run_dir: Path, folder: Path, kind: str, fix: dict[str, Any], **changes: Any) -> Path:
    """The rendered job; its script. gloo, and an embedding without rows that the weights lack."""
    gpus = fix.get("tensor_parallel", 1) * fix.get("pipeline_parallel", 1)
    fixed = {"precision": "fp32", "flash_attention": False, "micro_batch_size": BATCH, **fix}
    request = planner.build_request(
        tiny(kind), gpus, gpu="h200", fix={**recipes.required("llama2-finetune"), **fixed}, seq_length=LENGTH,
        global_batch_size=BATCH, trainer=Trainer(name="megatron-deepspeed", deepspeed="0.19.8", dropout=0.0),
    )  # fmt: skip
    tune = Finetune(
        weights=str(folder), data=str(folder / "alpaca.json"), export=changes.pop("export", False)
    )
    training = Training(
        **{
            "iterations": 4,
            "learning_rate": 1e-3,
            "checkpoint_interval": 2,
            "lr_warmup_iterations": 0,
            **changes,
        }
    )
    own = (
        "--distributed-backend",
        "gloo",
        "--make-vocab-size-divisible-by",
        str(64 // fix.get("tensor_parallel", 1)),
    )
    shims = run_dir.parent / "stand-ins"
    shims.mkdir(exist_ok=True)
    (shims / "sitecustomize.py").write_text(STAND_INS)
    variables = {
        "PYTHONPATH": str(shims), "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
        "LOCAL_SIZE": str(gpus),
    }  # fmt: skip
    spec = training_job(
        run_dir, planner.search(request).plans[0], "llama-2-7b", "h200", LENGTH, training,
        profile={
            "recipe": "llama2-finetune", "finetune": tune,
            "trainer": TrainerChoice(path=CHECKOUT, deepspeed="0.19.8", extra_arguments=own),
        },
        scheduler="local", site=Site(environment=Environment(kind="venv", path=VENV, variables=variables)),
    )  # fmt: skip
    return put(recipes.render(dataclasses.replace(spec, model=tiny(kind))), run_dir)


def run(script: Path, **more: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SLURM") and k != "PYTHON"}
    done = subprocess.run(
        ["bash", str(script)], env={**clean, **more}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900,
        check=False,
    )  # fmt: skip
    output = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, output[-4000:]
    return output


def losses(output: str) -> dict[int, float]:
    found = re.findall(r"iteration +(\d+)/.*?lm loss: ([0-9.E+-]+)", output)
    return {int(step): float(loss) for step, loss in found}


@pytest.mark.parametrize(
    "fix", [{}, {"tensor_parallel": 2}, {"pipeline_parallel": 2}], ids=["1", "tp2", "pp2"]
)
def test_converted_weights_compute_what_the_originals_do(
    tmp_path: Path, weights: tuple[Path, str], fix: dict[str, Any]
) -> None:
    folder, kind = weights
    script = job(tmp_path / "run", folder, kind, fix)
    output = run(script)
    reference = subprocess.run(
        [f"{VENV}/bin/python", str(HERE / "reference_loss.py"), str(tmp_path / "run"), str(folder), CHECKOUT,
         str(BATCH), str(LENGTH)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = losses(output)
    assert found[1] == pytest.approx(float(reference.stdout.split()[-1]), abs=2e-5)
    assert found[4] < found[1] - 0.1
    assert "rows of queries, keys and values by blocks" in output
    again = run(script, TRAIN_ITERS="5")
    assert "converted already" in again
    assert list(losses(again)) == [5]
    assert losses(again)[5] < found[1]


def test_export_gives_the_weights_back(tmp_path: Path, weights: tuple[Path, str]) -> None:
    """With a learning rate next to nothing, what comes out is what went in, as 16-bit numbers."""
    folder, kind = weights
    script = job(
        tmp_path / "run", folder, kind, {"tensor_parallel": 2}, export=True, learning_rate=1e-12,
        min_learning_rate=0.0, iterations=1, checkpoint_interval=1, weight_decay=0.0,
    )  # fmt: skip
    run(script)
    compare = (
        "import sys, torch; from transformers import LlamaForCausalLM as L;"
        "a, b = (L.from_pretrained(p, dtype=torch.float32).state_dict() for p in sys.argv[1:]);"
        "assert a.keys() == b.keys() and len(a) > 10;"
        "assert all(torch.allclose(a[k], b[k], rtol=1/128, atol=1e-6) for k in a), 'differ'"
    )
    done = subprocess.run(
        [f"{VENV}/bin/python", "-c", compare, str(folder), str(tmp_path / "run/export/release")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
