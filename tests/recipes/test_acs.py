"""The rules of Alibaba's image: each refuses with one sentence, in the profile and again in the job."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.errors import UserError
from gpt_tune.lint.report import lint
from gpt_tune.profiles import store
from gpt_tune.profiles.acs import Acs
from gpt_tune.profiles.schema import Environment, Profile, Resources, Site, Training
from gpt_tune.recipes import acs_rules
from tests.recipes.acs_support import IMAGE, SCRIPT, acs_job, run, written
from tests.recipes.specs import with_environment
from tests.recipes.test_hostile import VALUES


def problems(**changes: Any) -> list[str]:
    acs = dataclasses.replace(SCRIPT, **changes)
    return recipes.get("acs").problems(Profile(recipe="acs", acs=acs))


# -- driver ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("driver", "cuda", "good"),
    [
        ("575.57.08", "12.8", True), ("575", "12.8", True), ("580.95.05", "12.8", True), ("570.133.20", "12.8", False),
        ("574.99", "12.8", False), ("550.90.07", "12.8", False), ("560.35", "12.8", False), ("545.23", "12.8", False),
        ("535.86.10", "12.8", True), ("535.85", "12.8", False), ("525.85", "12.8", True), ("525.84", "12.8", False),
        ("470.57.02", "12.8", True), ("470.56", "12.8", False), ("580.65.06", "13.0", True), ("580", "13.0", True),
        ("579.99", "13.0", False), ("575.57.08", "13.0", False), ("535.86", "13.0", False),
    ],
)  # fmt: skip
def test_drivers(driver: str, cuda: str, good: bool, tmp_path: Path) -> None:
    assert (acs_rules.driver_problem(driver, cuda) == "") == good
    release = {"12.8": "25.10", "13.0": "26.04"}[cuda]
    acs = dataclasses.replace(SCRIPT, release=release, cuda=cuda, image="registry.example/x:1", driver=driver)
    found = recipes.get("acs").problems(Profile(recipe="acs", acs=acs))
    assert (found == []) == good
    if not good:
        assert f"Driver {driver} is too old for CUDA {cuda}" in found[0]
    # The job itself looks at what it finds on the node.
    if "." in driver:
        folder = written(acs_job(tmp_path / "run", dataclasses.replace(acs, driver="")))
        outcome = run(folder / "docker.sh", tmp_path / "start", DRIVER=driver)
        assert (outcome.code == 0) == good, outcome.output
        assert ("is too old for CUDA" in outcome.output) != good


def test_a_driver_can_be_tried_anyway(tmp_path: Path) -> None:
    folder = written(acs_job(tmp_path / "run"))
    outcome = run(folder / "docker.sh", tmp_path / "s", DRIVER="550.90.07", DRIVER_CHECK="0")
    assert outcome.code == 0, outcome.output
    for words in ("", "no devices were found"):
        unknown = run(folder / "docker.sh", tmp_path / f"u {words}", DRIVER=words)
        assert unknown.code == 0, unknown.output


@pytest.mark.parametrize("driver", ["new", "5", "575.", "575.1.2.3", "575;id", "-1"])
def test_what_is_no_driver_is_said(driver: str) -> None:
    assert "no NVIDIA driver version" in problems(driver=driver)[0]


# -- interface ------------------------------------------------------------------------------------
@pytest.mark.parametrize(("gpus", "name"), [(1, "eth0"), (2, "eth0"), (4, "eth0"), (8, "eth0"), (16, "hpn0")])
def test_interfaces(gpus: int, name: str, tmp_path: Path) -> None:
    folder = written(acs_job(tmp_path / "run", gpus=gpus, per_node=gpus))
    for script, slurm in (("docker.sh", 0), ("job.sbatch", 1)):
        outcome = run(folder / script, tmp_path / script, slurm, ranks=gpus)
        assert outcome.code == 0, outcome.output
        assert outcome.environment("python3")["NCCL_SOCKET_IFNAME"] == name
        wrong = run(folder / script, tmp_path / f"{script}-w", slurm, ranks=gpus, NCCL_SOCKET_IFNAME="bond0")
        assert wrong.code == 2
        assert f"has {name}" in wrong.output
        assert wrong.calls("python3") == []


@pytest.mark.parametrize(
    ("gpus", "near"), [(3, "2 or 4"), (6, "4 or 8"), (12, "8 or 16"), (32, "16"), (0, "1")]
)
def test_other_pods_are_refused(gpus: int, near: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"Use {near} a node"):
        recipes.render(acs_job(tmp_path, gpus=gpus, per_node=gpus))
    if gpus:
        found = recipes.get("acs").problems(
            Profile(recipe="acs", acs=SCRIPT, resources=Resources(gpus=gpus, gpus_per_node=gpus))
        )
        assert f"not {gpus}" in found[0]


def test_a_job_with_other_pods_than_planned_is_refused(tmp_path: Path) -> None:
    folder = written(acs_job(tmp_path / "run"))
    outcome = run(folder / "docker.sh", tmp_path / "s", RANKS="6")
    assert (outcome.code, "not 6" in outcome.output) == (2, True)
    two = run(folder / "job.sbatch", tmp_path / "t", slurm=2, ranks=16, GLOBAL_BATCH_SIZE="16")
    assert two.code == 0, two.output
    assert two.environment("python3")["NCCL_SOCKET_IFNAME"] == "eth0"  # 8 a node


def test_an_interface_of_the_users_own_is_refused_where_it_is_wrong(tmp_path: Path) -> None:
    site = Site(run_root=str(tmp_path), environment=Environment(variables={"NCCL_SOCKET_IFNAME": "hpn0"}))
    with pytest.raises(UserError, match=r"hpn0.*8 GPUs has eth0"):
        recipes.render(acs_job(tmp_path, site=site))
    assert recipes.render(acs_job(tmp_path, gpus=16, per_node=16, site=site))


@pytest.mark.parametrize(
    ("line", "name", "bad"),
    [
        ("#SBATCH --gres=gpu:16", "eth0", True), ("#SBATCH --gres=gpu:16", "hpn0", False),
        ("#SBATCH --gpus-per-node=h20:8", "hpn0", True), ("#SBATCH --gres=gpu:h20:8", "eth0", False),
        ("# no size", "hpn0", False), ("# no size", "bond0", True), ("torchrun --nproc_per_node 16 x.py", "eth0", True),
    ],
)  # fmt: skip
def test_lint_knows_the_same_rule(line: str, name: str, bad: bool, tmp_path: Path) -> None:
    text = f"#!/bin/bash\n#SBATCH --job-name=x\n{line}\nset -e\nexport CHECKPOINT_OPTIMIZATION=true\n"
    (tmp_path / "job.sbatch").write_text(f"{text}export NCCL_SOCKET_IFNAME={name}\nsrun python3 train.py\n")
    found = [f.message for f in lint([str(tmp_path)]).findings if f.rule == "acs-interface"]
    assert bool(found) == bad, found


# -- what must stay as it is ----------------------------------------------------------------------
@pytest.mark.parametrize("value", ["auto", None, "absent"])
@pytest.mark.parametrize("name", ["zero_optimization", "elsewhere"])
def test_a_configuration_that_leaves_the_prefetch_alone_is_taken(
    value: Any, name: str, tmp_path: Path
) -> None:
    zero: dict[str, Any] = {"stage": 3} if value == "absent" else {"stage": 3, acs_rules.PREFETCH: value}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({name: zero, "my_key": "kept"}))
    folder = written(acs_job(tmp_path / "run", dataclasses.replace(SCRIPT, deepspeed_config=str(file))))
    assert json.loads((folder / "ds_config.json").read_text())["my_key"] == "kept"
    outcome = run(folder / "docker.sh", tmp_path / "s")
    assert outcome.code == 0, outcome.output


@pytest.mark.parametrize("value", [500_000_000, 5e8, "5e8", 0, "500000000"])
def test_a_prefetch_size_is_refused(value: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"zero_optimization": {"stage": 3, acs_rules.PREFETCH: value}}))
    found = problems(deepspeed_config=str(file))
    assert acs_rules.PREFETCH in found[0]
    assert '"auto"' in found[0]
    # Somebody writes it into the run folder afterwards.
    folder = written(acs_job(tmp_path / "run"))
    (folder / "ds_config.json").write_text(file.read_text())
    outcome = run(folder / "docker.sh", tmp_path / "s")
    assert (outcome.code, "leave it out" in outcome.output) == (2, True), outcome.output
    assert outcome.calls("docker") == []


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "\x00", "null"])
def test_a_configuration_that_is_none_is_said(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(text)
    for path in (str(file), str(tmp_path), "/nowhere/x.json", "x\0y"):
        assert problems(deepspeed_config=path)


def test_what_we_write_leaves_it_to_the_image(tmp_path: Path) -> None:
    zero = json.loads((written(acs_job(tmp_path)) / "ds_config.json").read_text())["zero_optimization"]
    assert zero[acs_rules.PREFETCH] == "auto"


@pytest.mark.parametrize(
    "package",
    ["torch==2.6.0", "Torch==2.6.0", "deepspeed==0.16.4", "DeepSpeed[sparse]==0.16.4", "torch", "deepspeed>=0.16",
     "torch @ https://x.org/torch.whl", "git+https://github.com/x/y#egg=deepspeed", "pytorch==2.0"],
)  # fmt: skip
def test_the_images_own_builds_are_never_replaced(package: str) -> None:
    assert "patched" in problems(packages=("datasets==3.6.0", package))[0]


LOOSE = (
    "datasets",
    "datasets>=3",
    "-r requirements.txt",
    "datasets==",
    "a b==1",
    "--pre",
    "git+https://github.com/x/y",
)
FINE = ("datasets==3.6.0", "torchmetrics==1.7.1", "deepspeed-mii==0.3.3", "peft[dev]==0.16.0", "x==1.0+cu128")


@pytest.mark.parametrize("package", LOOSE)
def test_packages_are_pinned(package: str) -> None:
    assert "NAME==VERSION" in problems(packages=(package,))[0]


@pytest.mark.parametrize("package", FINE)
def test_other_packages_may_be_added(package: str) -> None:
    assert problems(packages=(package,)) == []


@pytest.mark.parametrize(
    ("arguments", "bad"),
    [
        (("-c", "pip install torch==2.6 && python x.py"), True),
        (("pip", "install", "--upgrade", "deepspeed"), True),
        (("python3", "-m", "pip", "install", "Torch[all]"), True),
        (("uv", "pip", "install", "torch"), True),
        (("-c", "pip install datasets; echo torch"), False),
        (("--model", "torch"), False),
        (("--text", "how to install torch"), False),
        (("pip", "install", "torchvision"), False),
    ],
)
def test_arguments_do_not_install_them_either(arguments: tuple[str, ...], bad: bool) -> None:
    assert any("patched" in p for p in problems(arguments=arguments)) == bad


# -- image ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "image"),
    [
        ({}, IMAGE),
        ({"release": "25.06"}, IMAGE.replace("25.10", "25.06")),
        ({"vpc_region": "cn-beijing"}, f"acs-registry-vpc.cn-beijing.cr.aliyuncs.com/{IMAGE.partition('/')[2]}"),
        ({"image": "my.registry:5000/team/x:1"}, "my.registry:5000/team/x:1"),
    ],
)  # fmt: skip
def test_images(changes: dict[str, Any], image: str) -> None:
    assert acs_rules.image_of(dataclasses.replace(SCRIPT, **changes)) == image


@pytest.mark.parametrize(
    ("image", "enroot"),
    [
        (IMAGE, IMAGE.replace(".com/", ".com#", 1)),
        ("my.registry:5000/team/x:1", "my.registry:5000#team/x:1"),
        ("localhost/x", "localhost#x"),
        ("ubuntu:24.04", "ubuntu:24.04"),
        ("team/image:1", "team/image:1"),
        ("reg.io#team/x:1", "reg.io#team/x:1"),
        ("/fsx/x.sqsh", "/fsx/x.sqsh"),
    ],
)
def test_enroot_sets_the_registry_off(image: str, enroot: str) -> None:
    assert acs_rules.enroot_address(image) == enroot


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"release": "25.1"}, "25.10"),
        ({"release": "26.04"}, "acs.image"),
        ({"release": "26.04", "image": "r.io/x:1"}, "CUDA 13.0 or 12.8"),
        ({"release": "26.04", "image": "r.io/x:1", "cuda": "12.9"}, "CUDA 13.0 or 12.8"),
        ({"cuda": "13.0"}, "has CUDA 12.8"),
        ({"vpc_region": "$(id)"}, "no region"),
        ({"image": "a b"}, "no spaces"),
        ({"image": "a\nb"}, "line break"),
        ({"script": "train.py"}, "absolute path"),
        ({"script": ""}, "is empty"),
        ({"namespace": "My_Space"}, "lower-case"),
        ({"namespace": ""}, "lower-case"),
        ({"volume_claim": "a b"}, "lower-case"),
        ({"secret_name": "x" * 64}, "lower-case"),
        ({"gpu_model": "L20 (fast)"}, "label"),
        ({"work": "ljperf", "script": "", "compile": True}, "acs.work=script"),
        ({"work": "ljperf"}, "acs.work=script"),
        ({"work": "ljperf", "script": "", "benchmark": " "}, "empty"),
    ],
)
def test_choices_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    found = problems(**changes)
    assert words in " ".join(found), found
    assert all("\n" not in p for p in found)


def test_ljperf_is_for_one_node(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one node, not 2"):
        recipes.render(acs_job(tmp_path, Acs(), gpus=16))


@pytest.mark.parametrize("kind", ["venv", "conda", "modules"])
def test_the_image_is_the_software(kind: Any, tmp_path: Path) -> None:
    spec = with_environment(acs_job(tmp_path), kind=kind, path="/opt/env", modules=("cuda",))
    with pytest.raises(UserError, match="runs in its image only"):
        recipes.render(spec)


def test_a_batch_that_does_not_divide_names_the_nearest(tmp_path: Path) -> None:
    acs = dataclasses.replace(SCRIPT, micro_batch_size=3)
    with pytest.raises(UserError, match=r"global batch 64 .* = 24\. Use 48 or 72"):
        recipes.render(acs_job(tmp_path, acs, profile={"training": Training(global_batch_size=64)}))


@pytest.mark.parametrize(
    ("training", "micro", "batch", "steps"),
    [
        (Training(), 1, 64, 50),  # 0.5 M tokens of 8192
        (Training(), 4, 64, 50),
        (Training(), 3, 48, 50),  # whole micro batches of 8 GPUs
        (Training(), 100, 800, 50),
        (Training(global_batch_size=16, tokens=1e6), 2, 16, 8),
        (Training(global_batch_size=16, iterations=7), 2, 16, 7),
    ],
)
def test_batch_and_steps(training: Training, micro: int, batch: int, steps: int, tmp_path: Path) -> None:
    acs = dataclasses.replace(SCRIPT, micro_batch_size=micro)
    rendered = recipes.render(acs_job(tmp_path / "run", acs, profile={"training": training}))
    assert rendered.prediction.tokens_per_step == batch * 8192
    assert rendered.prediction.total_steps == steps
    text = next(f.content for f in rendered.files if f.path == "docker.sh").decode()
    assert f"|| GLOBAL_BATCH_SIZE={batch} " in text
    assert f"|| TRAIN_ITERS={steps} " in text


def test_a_checkpoint_to_load_is_not_ignored_in_silence() -> None:
    found = recipes.get("acs").problems(Profile(recipe="acs", acs=SCRIPT, training=Training(load="/fsx/x")))
    assert "training.load" in found[0]


# -- whole ----------------------------------------------------------------------------------------
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "host": {},
    "pyxis": {"kind": "pyxis", "image": "/fsx/acs image.sqsh", "mounts": ("/fsx", "/data:/data:ro")},
    "apptainer": {"kind": "apptainer", "image": "/fsx/acs.sif"},
    "variables": {"variables": {"MY_VALUE": "x y", "HF_HOME": "/fsx/hf"}},
}
JOBS: dict[str, dict[str, Any]] = {
    "benchmark": {"acs": Acs()},
    "benchmark-recompute": {"acs": Acs(checkpoint_optimization=True)},
    "script": {"acs": SCRIPT},
    "script-all": {
        "acs": dataclasses.replace(
            SCRIPT, compile=True, checkpoint_optimization=True, zero_stage=2, packages=("datasets==3.6.0",),
            arguments=("--model_name_or_path", "/models/my llama"), volume_claim="fsx", secret_name="keys",
            gpu_model="L20",
        ),
        "profile": {"training": Training(checkpoint_interval=100, global_batch_size=128)},
    },
    "script-two-nodes": {"acs": SCRIPT, "gpus": 16},
    "script-whole-host": {"acs": SCRIPT, "gpus": 32, "per_node": 16},
    "cuda13": {"acs": dataclasses.replace(SCRIPT, release="26.04", cuda="13.0", image="/fsx/acs-26.sqsh")},
}  # fmt: skip


# Every job on the bare host, and the two that differ most in every environment.
LINTED = [(k, e) for k in JOBS for e in ENVIRONMENTS if e == "host" or k in ("benchmark", "script-all")]


@pytest.mark.parametrize(("kind", "environment"), LINTED)
def test_linters_find_nothing(kind: str, environment: str, tmp_path: Path) -> None:
    import shutil
    import subprocess

    spec = acs_job(tmp_path / "run", **JOBS[kind])
    folder = written(
        with_environment(spec, **ENVIRONMENTS[environment]) if ENVIRONMENTS[environment] else spec
    )
    report = lint([str(folder)])
    assert [f"{f.file}:{f.line} {f.rule}: {f.message}" for f in report.findings] == []
    scripts = [str(folder / "job.sbatch"), str(folder / "docker.sh")]
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["acs-llama3-8b", "acs-train"])
def test_starters_render(name: str, tmp_path: Path) -> None:
    profile = store.load(name)
    assert profile.recipe == "acs"
    assert recipes.get("acs").problems(profile) == []
    spec = dataclasses.replace(acs_job(tmp_path), profile=profile)
    assert "pytorchjob.yaml" in {f.path for f in recipes.render(spec).files}


CHECKED = (
    "packages", "release", "cuda", "driver", "vpc_region", "namespace", "volume_claim", "secret_name", "gpu_model",
    "deepspeed_config",
)  # fmt: skip


@pytest.mark.parametrize("field", CHECKED)
@pytest.mark.parametrize("kind", VALUES)
def test_hostile_text_is_refused_where_only_names_can_stand(field: str, kind: str) -> None:
    value: Any = (VALUES[kind],) if field == "packages" else VALUES[kind]
    found = problems(**{field: value})
    assert found, value
    assert all("\n" not in p and "\x1b" not in p and len(p) < 600 for p in found)


@pytest.mark.parametrize("kind", VALUES)
def test_a_hostile_configuration_file_stays_data(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"zero_optimization": {"stage": 2}, "tag": VALUES[kind], VALUES[kind]: 1}))
    folder = written(acs_job(tmp_path / "run", dataclasses.replace(SCRIPT, deepspeed_config=str(file))))
    outcome = run(folder / "docker.sh", tmp_path / "s")
    assert outcome.code == 0, outcome.output
    words = next(c for c in outcome.calls("python3"))
    used = Path(words[words.index("--deepspeed") + 1])
    assert json.loads(used.read_text())["tag"] == VALUES[kind]
    assert not list(tmp_path.rglob("PWNED"))
