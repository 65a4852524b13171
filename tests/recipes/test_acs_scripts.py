"""What reaches the container: every word of the command, byte for byte, through docker, srun and both switches."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.errors import UserError
from gpt_tune.profiles.acs import Acs
from gpt_tune.profiles.schema import Environment, Site, Training
from tests.containers.support import golden
from tests.recipes.acs_support import IMAGE, SCRIPT, Outcome, acs_job, run, written
from tests.recipes.specs import put, with_environment
from tests.recipes.test_hostile import VALUES

WAYS = (("docker.sh", 0), ("job.sbatch", 0), ("job.sbatch", 1))
WAY_NAMES = ("docker", "local", "slurm")
FULL = dataclasses.replace(
    SCRIPT, compile=True, checkpoint_optimization=True, arguments=("--model_name_or_path", "/models/llama"),
    packages=("datasets==3.6.0",),
)  # fmt: skip


def trainer_words(outcome: Outcome) -> list[str]:
    """The words behind the script's path in the last program that was started."""
    words = next(c for c in outcome.calls("python3") if "pip" not in c)
    return words[words.index("/workspace/train.py") + 1 :]


def options(words: list[str]) -> dict[str, str]:
    assert len(words) % 2 == 0, words
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize(("script", "slurm"), WAYS, ids=WAY_NAMES)
def test_the_trainer_gets_the_profile(script: str, slurm: int, tmp_path: Path) -> None:
    training = Training(global_batch_size=64, iterations=30, learning_rate=2e-5, checkpoint_interval=10)
    acs = dataclasses.replace(FULL, micro_batch_size=2)
    folder = written(acs_job(tmp_path / "run x", acs, profile={"training": training}))
    outcome = run(folder / script, tmp_path / "s", slurm)
    assert outcome.code == 0, outcome.output
    found = options(trainer_words(outcome))
    assert found["--model_name_or_path"] == "/models/llama"
    assert found["--per_device_train_batch_size"] == "2"
    assert found["--gradient_accumulation_steps"] == "4"
    assert (found["--max_steps"], found["--learning_rate"]) == ("30", "2e-05")
    assert (found["--torch_compile"], found["--bf16"]) == ("True", "True")
    assert (found["--save_strategy"], found["--save_steps"]) == ("steps", "10")
    assert found["--output_dir"] == f"{folder}/checkpoints"
    assert json.loads(Path(found["--deepspeed"]).read_text())["zero_optimization"]["stage"] == 3
    environment = outcome.environment("python3")
    assert environment["CHECKPOINT_OPTIMIZATION"] == "true"
    assert environment["NCCL_SOCKET_IFNAME"] == "eth0"
    installed = next(c for c in outcome.calls("python3") if "pip" in c)
    assert installed[-1] == "datasets==3.6.0"
    assert "--no-deps" in installed
    assert installed[installed.index("--target") + 1] == f"{folder}/packages"


@pytest.mark.parametrize(("script", "slurm"), WAYS, ids=WAY_NAMES)
def test_switches_that_are_off_leave_no_trace(script: str, slurm: int, tmp_path: Path) -> None:
    folder = written(acs_job(tmp_path / "run"))
    outcome = run(folder / script, tmp_path / "s", slurm)
    assert outcome.code == 0, outcome.output
    assert "--torch_compile" not in trainer_words(outcome)
    assert "CHECKPOINT_OPTIMIZATION" not in outcome.environment("python3")
    assert options(trainer_words(outcome))["--save_strategy"] == "no"


@pytest.mark.parametrize(("script", "slurm"), WAYS, ids=WAY_NAMES)
def test_numbers_may_be_overridden_and_are_checked(script: str, slurm: int, tmp_path: Path) -> None:
    folder = written(acs_job(tmp_path / "run"))
    outcome = run(
        folder / script, tmp_path / "s", slurm, MICRO_BATCH_SIZE="2", GLOBAL_BATCH_SIZE="48", ZERO_STAGE="2",
        COMPILE="1", CHECKPOINT_OPTIMIZATION="true", TRAIN_ITERS="7",
    )  # fmt: skip
    assert outcome.code == 0, outcome.output
    found = options(trainer_words(outcome))
    assert (found["--gradient_accumulation_steps"], found["--max_steps"]) == ("3", "7")
    assert found["--torch_compile"] == "True"
    assert json.loads(Path(found["--deepspeed"]).read_text())["zero_optimization"]["stage"] == 2
    assert outcome.environment("python3")["CHECKPOINT_OPTIMIZATION"] == "true"
    assert "MICRO_BATCH_SIZE=2 comes from the environment" in outcome.output


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("GLOBAL_BATCH_SIZE", "12", "use 8 or 16"),
        ("GLOBAL_BATCH_SIZE", "3", "use 8."),
        ("MICRO_BATCH_SIZE", "0", "at least 1"),
        ("MICRO_BATCH_SIZE", "a[$(touch PWNED)]", "whole number"),
        ("ZERO_STAGE", "0", "1, 2 or 3"),
        ("COMPILE", "yes", "0 or 1"),
        ("CHECKPOINT_OPTIMIZATION", "1", "true or false"),
        ("TRAIN_ITERS", "08", "whole number"),
        ("LEARNING_RATE", "fast", "must be a number"),
        ("RANKS", "x", "RANKS is 'x'"),
        ("SAVE_INTERVAL", "-1", "at least 0"),
        ("DRIVER_CHECK", "no", "0 or 1"),
    ],
)
def test_a_slip_is_said_before_anything_starts(name: str, value: str, words: str, tmp_path: Path) -> None:
    folder = written(acs_job(tmp_path / "run"))
    environment: dict[str, Any] = {name: value}
    outcome = run(folder / "docker.sh", tmp_path / "s", **environment)
    assert outcome.code == 2
    assert words in outcome.output, outcome.output
    assert outcome.calls("docker") == []
    assert not list(tmp_path.rglob("PWNED"))


@pytest.mark.parametrize(("script", "slurm"), WAYS, ids=WAY_NAMES)
def test_it_goes_on_from_the_newest_checkpoint(script: str, slurm: int, tmp_path: Path) -> None:
    folder = written(acs_job(tmp_path / "run"))
    for step in (9, 10, 100):
        (folder / "checkpoints" / f"checkpoint-{step}").mkdir(parents=True)
    outcome = run(folder / script, tmp_path / "s", slurm)
    assert (
        options(trainer_words(outcome))["--resume_from_checkpoint"] == f"{folder}/checkpoints/checkpoint-100"
    )


@pytest.mark.parametrize(("script", "slurm"), WAYS, ids=WAY_NAMES)
def test_the_benchmark_is_one_program(script: str, slurm: int, tmp_path: Path) -> None:
    folder = written(acs_job(tmp_path / "run", Acs(benchmark="deepspeed/llama3-8b")))
    assert not (folder / "ds_config.json").exists()
    outcome = run(folder / script, tmp_path / "s", slurm)
    assert outcome.code == 0, outcome.output
    assert outcome.calls("ljperf") == [["benchmark", "--model", "deepspeed/llama3-8b"]]
    environment = outcome.environment("ljperf")
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"} & environment.keys()
    assert environment["NCCL_SOCKET_IFNAME"] == "eth0"
    if slurm:
        words = outcome.calls("srun")[0]
        assert "--ntasks=1" in words
        assert "--cpu-bind=none" in words


def test_docker_is_started_as_the_notes_say(tmp_path: Path) -> None:
    site = Site(
        run_root="/x", environment=Environment(mounts=("/data:/data:ro",), variables={"MY_VALUE": "a b"})
    )
    folder = written(acs_job(tmp_path / "run", site=site))
    outcome = run(folder / "docker.sh", tmp_path / "s")
    words = outcome.calls("docker")[0]
    assert words[0] == "run"
    assert {"--rm", "--ipc=host", "--net=host", "--privileged", "--init"} <= set(words)
    assert words[words.index("--gpus") + 1] == "all"
    volumes = [words[i + 1] for i, w in enumerate(words) if w == "--volume"]
    assert volumes == [f"{folder}:{folder}", "/data:/data:ro"]
    assert [words[i + 1] for i, w in enumerate(words) if w == "--env"] == ["NCCL_SOCKET_IFNAME", "MY_VALUE"]
    assert "a b" not in words  # by name: values stay out of the list of processes
    assert words[words.index(IMAGE) + 1 :][:4] == ["python3", "-m", "torch.distributed.run", "--standalone"]
    assert "--tty" not in words
    assert outcome.environment("python3")["MY_VALUE"] == "a b"
    bare = run(folder / "docker.sh", tmp_path / "b", DOCKER_GPUS="", IMAGE="other:1")
    assert "--gpus" not in bare.calls("docker")[0]
    assert "other:1" in bare.calls("docker")[0]


def test_srun_starts_the_image_and_its_settings_win(tmp_path: Path) -> None:
    acs = dataclasses.replace(SCRIPT, checkpoint_optimization=True)
    spec = with_environment(acs_job(tmp_path / "run", acs), variables={"HF_HOME": "/fsx/hf"})
    outcome = run(written(spec) / "job.sbatch", tmp_path / "s", slurm=1)
    words = outcome.calls("srun")[0]
    assert f"--container-image={IMAGE.replace('.com/', '.com#', 1)}" in words
    assert "--container-env=NCCL_SOCKET_IFNAME,CHECKPOINT_OPTIMIZATION,HF_HOME" in words
    assert f"--container-mounts={spec.run_dir}:{spec.run_dir}" in words
    assert not any(w.startswith("--auto-resume") for w in words)


def test_a_cluster_without_pyxis_is_told_of_docker(tmp_path: Path) -> None:
    folder = written(acs_job(tmp_path / "run"))
    outcome = run(folder / "job.sbatch", tmp_path / "s", slurm=1, NO_PYXIS="1")
    assert outcome.code == 2
    assert "docker.sh" in outcome.output


def test_packages_that_bring_torch_stop_the_job(tmp_path: Path) -> None:
    folder = written(acs_job(tmp_path / "run", FULL))
    (folder / "packages" / "torch").mkdir(parents=True)
    for script, slurm in WAYS:
        outcome = run(folder / script, tmp_path / f"{script}{slurm}", slurm)
        assert outcome.code == 2
        assert "would replace the image's" in outcome.output
        assert not any("/workspace/train.py" in c for c in outcome.calls("python3"))


def test_an_image_without_a_known_tag_needs_one_for_docker(tmp_path: Path) -> None:
    acs = dataclasses.replace(SCRIPT, release="26.04", cuda="13.0", image="/fsx/acs.sqsh")
    rendered = recipes.render(acs_job(tmp_path / "run", acs))
    assert "docker.sh needs IMAGE" in rendered.summary["warnings"][0]
    folder = put(rendered, tmp_path / "run").parent
    outcome = run(folder / "docker.sh", tmp_path / "s")
    assert outcome.code == 2
    assert "IMAGE" in outcome.output


FIELDS = ("arguments", "script", "benchmark", "checkpoint_dir", "variable", "name", "image", "mount")
# Every field through docker.sh and srun; that job.sbatch hands over to docker.sh is seen by its arguments.
HOSTILE = [
    (field, kind, *way)
    for field in FIELDS
    for kind in VALUES
    for way in (WAYS if field == "arguments" else (WAYS[0], WAYS[2]))
    # No path is that long.
    if kind != "long" or field in ("arguments", "benchmark", "variable", "name")
]


@pytest.mark.parametrize(("field", "kind", "script", "slurm"), HOSTILE)
def test_any_text_arrives_as_it_is_or_is_refused(
    field: str, kind: str, script: str, slurm: int, tmp_path: Path
) -> None:
    value = VALUES[kind]
    acs, environment = SCRIPT, Environment()
    changes: dict[str, Any] = {}
    wanted = value
    if field == "arguments":
        acs = dataclasses.replace(acs, arguments=("--text", value, "", "--last"))
    elif field == "script":
        wanted = "/workspace/" + value
        acs = dataclasses.replace(acs, script=wanted)
    elif field == "benchmark":
        acs = Acs(benchmark=value)
    elif field == "checkpoint_dir":
        wanted = str(tmp_path / "save" / value.replace("/", "_")[:60])
        changes = {"profile": {"training": Training(checkpoint_dir=wanted)}}
    elif field == "variable":
        environment = Environment(variables={"MY_VALUE": value})
    elif field == "name":
        changes = {"profile": {"name": value}}
    elif field == "image":
        acs = dataclasses.replace(acs, image="r.io/" + value)
    else:
        environment = Environment(mounts=("/nowhere/" + value,))
    site = Site(run_root=str(tmp_path), environment=environment)
    folder = tmp_path / "run"
    try:
        rendered = recipes.render(acs_job(folder, acs, site=site, **changes))
    except UserError:
        # Nothing of it was written, and the reason is one line (checked for every refusal in test_hostile's way).
        assert kind == "nul" or field in ("image", "mount", "checkpoint_dir")
        return
    put(rendered, folder)
    outcome = run(folder / script, tmp_path / "s", slurm)
    assert outcome.code == 0, outcome.output
    assert not list(tmp_path.rglob("PWNED"))
    program = "ljperf" if field == "benchmark" else "python3"
    words = outcome.calls(program)[0]
    if field == "arguments":
        at = words.index("/workspace/train.py")
        assert words[at + 1 : at + 5] == ["--text", value, "", "--last"]
    elif field == "benchmark":
        assert words == ["benchmark", "--model", value]
    elif field == "script":
        assert wanted in words
    elif field == "checkpoint_dir":
        assert options(trainer_words(outcome))["--output_dir"] == wanted
    elif field == "variable":
        assert outcome.environment("python3")["MY_VALUE"] == value


# Options of transformers 4.56.1, which release 25.10 of the image is built on. 48 command lines of docker.sh (every
# schedule, precision, ZeRO stage, compiled or not) went through its HfArgumentParser with DeepSpeed 0.16.9.
OPTIONS = set((Path(__file__).parents[1] / "data" / "acs" / "training_arguments.txt").read_text().split())


@pytest.mark.parametrize("style", ["constant", "linear", "cosine", "inverse-square-root"])
@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
def test_the_trainer_knows_every_option(style: Any, precision: Any, tmp_path: Path) -> None:
    training = Training(lr_decay_style=style, precision=precision, checkpoint_interval=10)
    acs = dataclasses.replace(SCRIPT, compile=True)
    folder = written(acs_job(tmp_path / "run", acs, profile={"training": training}))
    (folder / "checkpoints" / "checkpoint-10").mkdir(parents=True)
    found = options(trainer_words(run(folder / "docker.sh", tmp_path / "s")))
    assert len(found) > 18
    assert {name.removeprefix("--") for name in found} <= OPTIONS
    assert found["--lr_scheduler_type"] in ("constant_with_warmup", "linear", "cosine", "inverse_sqrt")


@pytest.mark.parametrize("file", ["job.sbatch", "docker.sh", "pytorchjob.yaml", "README.md"])
@pytest.mark.parametrize("kind", ["benchmark", "training"])
def test_files_are_as_reviewed(kind: str, file: str) -> None:
    training: dict[str, Any] = {
        "profile": {"training": Training(global_batch_size=64, checkpoint_interval=100)}
    }
    spec = (
        acs_job("/fsx/runs/r1", Acs())
        if kind == "benchmark"
        else acs_job("/fsx/runs/r1", FULL, gpus=16, **training)
    )
    text = next(f.content for f in recipes.render(spec).files if f.path == file).decode()
    assert text == golden(f"../acs/{kind}/{file}", text)
