"""A QLoRA job: what its trainer is started with, what it refuses, and what never reaches a file."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any, Literal

import pytest

from gpt_tune import recipes
from gpt_tune.errors import UserError
from gpt_tune.models import catalogue
from gpt_tune.profiles import store
from gpt_tune.profiles.schema import Environment, Finetune, ModelChoice, Profile, Resources, Site, Training
from gpt_tune.recipes import qlora, qlora_choices
from gpt_tune.recipes.base import JobSpec
from tests.recipes import stubs
from tests.recipes.specs import job, put, with_environment

TUNE = Finetune(weights="Qwen/Qwen3-8B", data="some/data")
HOSTILE = [
    "a b", "it's", 'say "x"', "$(touch /tmp/owned)", "`id`", "back\\slash", "a;b", "a&b", "* ?", "-n", "%j",
    "ünïcödé 漢字", "x" * 3500, "{{ 7*7 }}", "a,b", "!h", "#c", "tab\there",
]  # fmt: skip


def qlora_job(
    run_dir: Path, tune: Finetune = TUNE, gpus: int = 8, gpu: str = "h200", **changes: Any
) -> JobSpec:
    profile = Profile(
        **{
            "name": "tune it",
            "recipe": "qlora",
            "finetune": tune,
            "model": ModelChoice(id="qwen3-8b"),
            "resources": Resources(gpus=gpus or None, gpu=gpu),
            **changes.pop("profile", {}),
        }
    )
    values: dict[str, Any] = {
        "scheduler": "slurm",
        "model": catalogue.get(profile.model.id),
        "gpus": gpus,
        "gpus_per_node": min(gpus, 8),
        "nodes": max(1, gpus // 8),
        "site": Site(run_root=str(run_dir), partition="dev", time_limit="2:00:00"),
    }
    return job(run_dir, profile, **{**values, **changes})


def written(spec: JobSpec) -> Path:
    return put(recipes.render(spec), spec.run_dir)


def options(arguments: list[str]) -> dict[str, str]:
    """Options of the trainer; every one has a value but --cpu."""
    words = [w for w in arguments if w != "--cpu"]
    start = next(i for i, w in enumerate(words) if w.endswith("/trainer/finetune.py"))
    pairs = words[start + 1 :]
    assert len(pairs) % 2 == 0, pairs
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def test_the_trainer_gets_the_profile(tmp_path: Path) -> None:
    spec = qlora_job(tmp_path / "run x")
    outcome = stubs.run(written(spec), tmp_path / "s", slurm=True)
    assert outcome.code == 0, outcome.output
    found = options(outcome.arguments)
    assert found["--weights"] == "Qwen/Qwen3-8B"
    assert found["--strategy"] == "ddp"
    assert (found["--max-length"], found["--lora-rank"], found["--lora-alpha"]) == ("1536", "16", "32")
    assert (found["--learning-rate"], found["--epochs"]) == ("0.0002", "3.0")
    assert found["--output"] == f"{spec.run_dir}/checkpoints"
    assert "--deepspeed-config" not in found
    settings = json.loads((Path(spec.run_dir) / "finetune.json").read_text())
    assert settings["gradient_clipping"] == 0.3
    assert settings["optimizer"] == "paged_adamw_8bit"
    assert settings["lora_dropout"] == 0.05
    assert (Path(spec.run_dir) / "exit_code").read_text() == "0\n"


def test_the_trainer_parses_what_the_job_says(tmp_path: Path) -> None:
    """Every option the job passes is one that the trainer's own parser takes."""
    spec = qlora_job(tmp_path / "run")
    outcome = stubs.run(written(spec), tmp_path / "s", slurm=True, STRATEGY="zero3")
    folder = Path(spec.run_dir) / "trainer"
    start = next(i for i, w in enumerate(outcome.arguments) if w.endswith("finetune.py"))
    program = (
        "import json, sys; sys.path.insert(0, sys.argv.pop(1)); import settings; "
        "s, o = settings.parse(sys.argv[1:]); print(json.dumps([s, vars(o)]))"
    )
    done = subprocess.run(
        ["python3", "-c", program, str(folder), *outcome.arguments[start + 1 :]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    settings, others = json.loads(done.stdout)
    assert settings["strategy"] == "zero3"
    assert others["deepspeed_config"] == f"{spec.run_dir}/ds_zero3.json"
    assert json.loads(Path(others["deepspeed_config"]).read_text())["zero_optimization"]["stage"] == 3


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_arrives_as_it_is(tmp_path: Path, text: str) -> None:
    tune = dataclasses.replace(
        TUNE, weights=text, data=text, system_prompt=text + "\nnext", prompt_field=text
    )
    spec = qlora_job(tmp_path / "run", tune, profile={"name": text})
    outcome = stubs.run(written(spec), tmp_path / "s", slurm=True)
    assert outcome.code == 0, outcome.output
    found = options(outcome.arguments)
    assert found["--weights"] == text
    assert found["--data"] == text
    settings = json.loads((Path(spec.run_dir) / "finetune.json").read_text())
    assert settings["system_prompt"] == text + "\nnext"
    assert settings["prompt_field"] == text
    assert not Path("/tmp/owned").exists()


@pytest.mark.parametrize("text", ["a\nb", "a\rb"])
def test_line_breaks_in_paths_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="line break"):
        recipes.render(qlora_job(tmp_path, dataclasses.replace(TUNE, data=text)))


def test_keys_and_caches_stay_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwx", "HF_HOME": str(tmp_path / "cache of mine")}
    for name, value in here.items():
        monkeypatch.setenv(name, value)
    spec = qlora_job(tmp_path / "run")
    outcome = stubs.run(written(spec), tmp_path / "s", slurm=True, **here)
    assert {k: outcome.ranks["0"][0].environment[k] for k in here} == here
    for file in recipes.render(spec).files:
        assert here["HF_TOKEN"].encode() not in file.content
        assert here["HF_HOME"].encode() not in file.content
    assert here["HF_TOKEN"] not in outcome.output


ENVIRONMENTS: list[dict[str, Any]] = [
    {"kind": "host"},
    {"kind": "venv", "path": "/shared/v e"},
    {"kind": "conda", "path": "/shared/c"},
    {"kind": "modules", "modules": ("cuda/13", "python")},
    {"kind": "pyxis", "image": "/img/x y.sqsh", "mounts": ("/fsx:/fsx",)},
    {"kind": "apptainer", "image": "/img/x.sif"},
]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda e: e["kind"])
@pytest.mark.parametrize("gpus", [0, 1, 16])
def test_scripts_are_sound(tmp_path: Path, environment: dict[str, Any], gpus: int) -> None:
    spec = with_environment(qlora_job(tmp_path / "run", gpus=gpus), **environment)
    path = written(spec)
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
    done = subprocess.run(["shellcheck", str(path)], capture_output=True, text=True, check=False)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"MICRO_BATCH_SIZE": "0"}, "MICRO_BATCH_SIZE is '0'"),
        ({"LORA_RANK": "8x"}, "LORA_RANK is '8x'"),
        ({"LEARNING_RATE": "fast"}, "LEARNING_RATE is 'fast'"),
        ({"STRATEGY": "zero1"}, "ddp, zero2 or zero3"),
        ({"BASE_WEIGHTS": "int8"}, "nf4, fp4 or 16bit"),
        ({"DATA": "/nowhere/x.json"}, "The data /nowhere/x.json cannot be read"),
        ({"WEIGHTS": "/nowhere"}, "no folder of Hugging Face weights"),
        ({"RESUME": "weights"}, "RESUME=weights needs a checkpoint"),
        ({"MAX_STEPS": "$(id)"}, "MAX_STEPS is '$(id)'"),
    ],
)
def test_wrong_overrides_end_the_job_before_it_starts_anything(
    tmp_path: Path, environment: dict[str, str], words: str
) -> None:
    outcome = stubs.run(written(qlora_job(tmp_path / "run")), tmp_path / "s", slurm=True, **environment)
    assert outcome.code == 2
    assert words in outcome.output
    assert outcome.ranks == {}


def test_numbers_may_come_from_the_environment(tmp_path: Path) -> None:
    """The seed assigned GPUS_PER_NODE before it looked at the environment: nothing may do that here."""
    spec = qlora_job(tmp_path / "run")
    script = written(spec)
    for position, (variable, value, _) in enumerate(qlora._settings(spec, qlora_choices.choose(spec))):
        other = {"STRATEGY": "zero2", "BASE_WEIGHTS": "fp4"}.get(variable, "7")
        assert str(value) != other
        outcome = stubs.run(script, tmp_path / f"s{position}", slurm=True, **{variable: other})
        assert outcome.code == 0, outcome.output
        assert f"{variable}={other} comes from the environment" in outcome.output
        assert other in options(outcome.arguments).values()
    outcome = stubs.run(script, tmp_path / "ranks", slurm=True, SLURM_NTASKS="32")
    assert "32 ranks x 1 examples x 4 accumulation steps = 128 examples a step" in outcome.output


@pytest.mark.parametrize("resume", ["none", "weights"])
def test_starting_over_sets_earlier_checkpoints_aside_once(tmp_path: Path, resume: str) -> None:
    spec = qlora_job(tmp_path / "run")
    script = written(spec)
    saved = Path(spec.run_dir) / "checkpoints"
    (saved / "checkpoint-30").mkdir(parents=True)
    first = stubs.run(script, tmp_path / "a", slurm=True, RESUME=resume)
    assert first.code == 0, first.output
    kept = saved / "earlier-4711"
    assert (kept / "checkpoint-30").is_dir()
    found = options(first.arguments)
    assert found["--resume"] == "auto"
    assert found.get("--adapter-from") == (str(kept) if resume == "weights" else None)
    (saved / "checkpoint-5").mkdir()
    again = stubs.run(script, tmp_path / "b", slurm=True, RESUME=resume, SLURM_RESTART_COUNT="1")
    assert options(again.arguments) == found
    assert (saved / "checkpoint-5").is_dir()


def test_without_slurm_it_runs_every_rank_itself(tmp_path: Path) -> None:
    spec = qlora_job(tmp_path / "run", gpus=2, scheduler="local")
    outcome = stubs.run(written(spec), tmp_path / "s")
    assert outcome.code == 0, outcome.output
    assert {r: s[0].environment["WORLD_SIZE"] for r, s in outcome.ranks.items()} == {"0": "2", "1": "2"}
    assert outcome.ranks["0"][0].environment["MASTER_ADDR"] == "127.0.0.1"


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    spec = qlora_job(tmp_path / "run", gpus=0, gpus_per_node=0, scheduler="local")
    rendered = recipes.render(spec)
    assert any("no GPU" in w for w in rendered.summary["warnings"])
    outcome = stubs.run(put(rendered, spec.run_dir), tmp_path / "s")
    assert "--cpu" in outcome.arguments
    assert "PYTORCH_CUDA_ALLOC_CONF" not in outcome.ranks["0"][0].environment


def test_the_strategy_is_the_fastest_that_fits(tmp_path: Path) -> None:
    def chosen(model: str, gpus: int, gpu: str) -> qlora_choices.Chosen:
        spec = qlora_job(tmp_path, gpus=gpus, gpu=gpu, profile={"model": ModelChoice(id=model)})
        return qlora_choices.choose(spec)

    assert chosen("qwen3-8b", 8, "h200").strategy == "ddp"
    assert chosen("llama-3.1-405b", 8, "h200").strategy == "zero3"
    assert chosen("llama-3.1-405b", 1, "h200").strategy == "ddp"
    asked = qlora_job(tmp_path, dataclasses.replace(TUNE, strategy="zero2"))
    assert qlora_choices.choose(asked).strategy == "zero2"
    tight = recipes.render(qlora_job(tmp_path, gpus=1, profile={"model": ModelChoice(id="llama-3.1-405b")}))
    assert any("GiB a GPU" in w for w in tight.summary["warnings"])
    assert tight.prediction.memory_gib is not None
    assert tight.prediction.step_seconds is None
    cases: tuple[tuple[Literal["nf4", "16bit"], bool], ...] = (("nf4", True), ("16bit", False))
    for base, warned in cases:
        three = recipes.render(
            qlora_job(tmp_path, dataclasses.replace(TUNE, strategy="zero3", base_weights=base))
        )
        assert any("ZeRO-3 with 4-bit" in w for w in three.summary["warnings"]) == warned


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": ""}, "finetune.weights is empty"),
        ({"data": " "}, "finetune.data is empty"),
        ({"lora_rank": 0}, "finetune.lora_rank is 0; it must be at least 1"),
        ({"lora_dropout": 1.0}, "finetune.lora_dropout is 1; it is a share"),
        ({"validation_share": -0.1}, "finetune.validation_share is -0.1"),
        ({"learning_rate": float("nan")}, "finetune.learning_rate is nan"),
        ({"epochs": 0.0}, "finetune.epochs is 0"),
        ({"lora_targets": ()}, "finetune.lora_targets is empty"),
        ({"steps": 0}, "finetune.steps is 0"),
    ],
)
def test_choices_that_cannot_train_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    spec = qlora_job(tmp_path, dataclasses.replace(TUNE, **changes))
    assert any(words in p for p in recipes.get("qlora").problems(spec.profile))
    with pytest.raises(UserError):
        recipes.render(spec)


def test_experts_are_not_quantised(tmp_path: Path) -> None:
    experts = {"model": ModelChoice(id="mixtral-8x7b")}
    (problem,) = recipes.get("qlora").problems(qlora_job(tmp_path, profile=experts).profile)
    assert "16bit" in problem
    plain = dataclasses.replace(TUNE, base_weights="16bit")
    assert recipes.get("qlora").problems(qlora_job(tmp_path, plain, profile=experts).profile) == []


def test_the_starter_renders(tmp_path: Path) -> None:
    profile = dataclasses.replace(store.load("qlora-qwen3-8b"), resources=Resources(gpu="h200"))
    spec = dataclasses.replace(qlora_job(tmp_path / "run"), profile=profile)
    rendered = recipes.render(spec)
    assert rendered.summary["warnings"] == []
    settings = json.loads(next(f.content for f in rendered.files if f.path == "finetune.json"))
    assert (settings["prompt_field"], settings["reasoning_field"]) == ("Question", "Complex_CoT")
    readme = next(f.content for f in rendered.files if f.path == "README.md").decode()
    for name in ("STRATEGY", "RESUME", "HF_HOME"):
        assert f"`{name}`" in readme
    assert "expected memory per GPU" in readme


def test_checkpoints_may_go_elsewhere_and_are_mounted(tmp_path: Path) -> None:
    spec = qlora_job(tmp_path / "run", profile={"training": Training(checkpoint_dir="/ckpt/here")})
    spec = dataclasses.replace(
        spec, site=dataclasses.replace(spec.site, environment=Environment(kind="pyxis", image="r/i:1"))
    )
    script = next(f.content for f in recipes.render(spec).files if f.path == "job.sbatch").decode()
    assert "/ckpt/here:/ckpt/here" in script
    assert "SAVE_DIR=/ckpt/here" in script
