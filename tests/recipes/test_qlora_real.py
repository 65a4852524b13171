"""QLoRA for real, on random weights of a tiny Llama and the CPU: train, be stopped, go on, quantised or not.

GPT_TUNE_FINETUNE_PYTHON names a Python with torch, transformers, peft, accelerate and (for 4 bits) bitsandbytes;
without it these tests are left out, because those packages are far larger than everything else here.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.logs.parse import parse_files
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.schema import Finetune, ModelChoice, Profile
from tests.recipes.specs import job, put

PYTHON = os.environ.get("GPT_TUNE_FINETUNE_PYTHON", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="GPT_TUNE_FINETUNE_PYTHON names no Python with torch and peft"),
]
SHAPE = ModelShape(
    id="tiny-llama", layers=2, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=320, seq_length=64, head_size=16
)
MAKE = Path(__file__).with_name("make_tiny_llama.py")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny llama")
    subprocess.run([PYTHON, str(MAKE), str(folder), "chat"], check=True, capture_output=True)
    return folder


def tiny_job(run_dir: Path, weights: Path, **tune: Any) -> Path:
    """A rendered run folder of the local backend; its script."""
    values: dict[str, Any] = {
        "weights": str(weights), "data": str(weights / "data.jsonl"), "reasoning_field": "Complex_CoT",
        "base_weights": "16bit", "lora_rank": 4, "lora_alpha": 8, "micro_batch_size": 2,
        "gradient_accumulation_steps": 1, "epochs": 1.0, "learning_rate": 1e-2, "checkpoint_interval": 5,
        "eval_interval": 10, "log_interval": 1, "lora_targets": ("q_proj", "v_proj", "gate_proj"),
        **tune,
    }  # fmt: skip
    profile = Profile(
        name="tiny",
        recipe="qlora",
        finetune=Finetune(**values),
        model=ModelChoice(id="llama-3.2-1b", seq_length=64),
    )
    spec = job(run_dir, profile, model=SHAPE)
    return put(recipes.render(spec), run_dir)


def environment(**more: str) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    return {**clean, "PYTHON": PYTHON, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **more}


def run(script: Path, **more: str) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", str(script)], env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=420, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.decode("utf-8", "replace")


def figures(output: str) -> list[dict[str, Any]]:
    """The dicts of figures with a loss, by step."""
    found = []
    for line in output.splitlines():
        if line.startswith("{'loss'"):
            found.append(json.loads(line.replace("'", '"')))
    return found


def until(file: Path, words: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if words in file.read_text(errors="replace"):
            return
        assert process.poll() is None, file.read_text(errors="replace")[-3000:]
        pause()
    raise AssertionError(f"{words!r} never came: {file.read_text(errors='replace')[-3000:]}")


def pause() -> None:
    """Give the trainer the processor between two looks at its log."""
    with selectors.DefaultSelector() as nothing:
        nothing.select(0.05)


@pytest.mark.parametrize("base", ["16bit", "nf4"])
def test_it_trains_and_learns(tmp_path: Path, weights: Path, base: str) -> None:
    if base == "nf4":
        found = subprocess.run([PYTHON, "-c", "import bitsandbytes"], check=False, capture_output=True)
        if found.returncode:
            pytest.skip("bitsandbytes is not installed there")
    code, output = run(tiny_job(tmp_path / "run", weights, base_weights=base))
    assert code == 0, output[-3000:]
    losses = figures(output)
    assert [f["step"] for f in losses] == list(range(1, losses[0]["total_steps"] + 1))
    assert losses[-1]["loss"] < losses[0]["loss"] - 0.1
    assert f"base weights {base}" in output
    final = tmp_path / "run" / "checkpoints" / "final"
    assert (final / "adapter_model.safetensors").stat().st_size > 1000
    assert (final / "adapter_config.json").is_file()
    assert (final / "tokenizer.json").is_file()


def test_its_log_is_read_with_step_numbers(tmp_path: Path, weights: Path) -> None:
    _, output = run(tiny_job(tmp_path / "run", weights, log_interval=3))
    log = tmp_path / "x.out"
    log.write_text(output)
    result = parse_files([str(log)])
    assert [(s.iteration, s.loss) for s in result.steps()] == [
        (f["step"], f["loss"]) for f in figures(output)
    ]


def test_stopped_it_saves_and_goes_on_where_it_was(tmp_path: Path, weights: Path) -> None:
    """Two ranks; the scheduler's early warning reaches the script. Then the same losses as without a stop."""
    straight = figures(run(tiny_job(tmp_path / "straight", weights), RANKS="2")[1])
    script = tiny_job(tmp_path / "run", weights)
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["bash", str(script)], env=environment(RANKS="2"), stdout=file, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        until(log, "'step': 6,", process)
        process.send_signal(signal.SIGUSR1)
        assert process.wait(timeout=240) == 0, log.read_text()[-3000:]
    first = log.read_text()
    match = re.search(r"stopped at step (\d+) of (\d+)", first)
    assert match is not None, first[-3000:]
    stopped = int(match.group(1))
    assert 6 <= stopped < int(match.group(2))
    code, second = run(script, RANKS="2")
    assert code == 0, second[-3000:]
    assert f"continuing from {tmp_path}/run/checkpoints/checkpoint-{stopped}" in second
    both = {f["step"]: f["loss"] for f in figures(first) + figures(second)}
    assert sorted(both) == [f["step"] for f in straight]
    for f in straight:
        assert both[f["step"]] == pytest.approx(f["loss"], abs=2e-3), f["step"]


def test_a_torn_checkpoint_is_passed_over(tmp_path: Path, weights: Path) -> None:
    script = tiny_job(tmp_path / "run", weights, checkpoint_interval=3)
    code, _ = run(script, MAX_STEPS="6")
    assert code == 0
    (tmp_path / "run/checkpoints/checkpoint-6/complete.json").unlink()
    code, output = run(script, MAX_STEPS="6")
    assert code == 0, output[-3000:]
    assert "checkpoint-6 is not whole" in output
    assert [f["step"] for f in figures(output)] == [4, 5, 6]


def test_an_adapter_starts_a_new_run(tmp_path: Path, weights: Path) -> None:
    script = tiny_job(tmp_path / "run", weights)
    before = figures(run(script)[1])
    code, output = run(script, RESUME="weights", MAX_STEPS="2", GPT_TUNE_JOB_ID="local-77")
    assert code == 0, output[-3000:]
    assert "earlier-local-77" in output
    after = figures(output)
    assert after[0]["step"] == 1
    assert after[0]["loss"] < before[0]["loss"] - 0.1


def test_what_is_wrong_ends_it_with_one_sentence(tmp_path: Path, weights: Path) -> None:
    cases: Iterator[tuple[dict[str, Any], str, int]] = iter(
        [
            ({"answer_field": "nothing"}, "no field 'nothing'", 2),
            ({"lora_targets": ("fc1",)}, "The model has none of the layers fc1", 2),
        ]
    )
    for number, (tune, words, code) in enumerate(cases):
        found, output = run(tiny_job(tmp_path / f"run{number}", weights, **tune))
        assert found == code, output[-2000:]
        assert words in output
        assert "Traceback" not in output
