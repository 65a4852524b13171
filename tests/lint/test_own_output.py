"""Nothing that gpt-tune writes itself has a fault that lint knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.lint.report import lint
from gpt_tune.profiles.schema import Custom, Profile, Site, Training
from gpt_tune.recipes.base import JobSpec
from tests.recipes.plans import plan_for, training_job
from tests.recipes.specs import job, put, with_environment
from tests.recipes.test_llama2 import llama_job
from tests.recipes.test_megatron_lm import lm_job
from tests.recipes.test_qlora import qlora_job

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "host": {},
    "pyxis": {"kind": "pyxis", "image": "/fsx/apps/image.sqsh", "mounts": ("/fsx",)},
    "apptainer": {"kind": "apptainer", "image": "/fsx/apps/image.sif"},
    "venv": {"kind": "venv", "path": "/fsx/venv"},
    "conda": {"kind": "conda", "path": "/fsx/conda"},
    "modules": {"kind": "modules", "modules": ("cuda/12.8", "nccl")},
}
# model, GPUs, GPU type, what the layout must be.
LAYOUTS: list[tuple[str, int, str, tuple[str, ...]]] = [
    ("gpt-1.3b", 8, "h200", ()),
    ("gpt-145b", 64, "b200", ()),
    ("gpt-145b", 64, "b200", ("zero_stage=1", "pipeline_parallel=2", "tensor_parallel=8", "sequence_parallel=true")),
    ("gpt-1.3b", 8, "h200", ("zero_stage=3",)),
    ("gpt-1.3b", 4, "h200", ("zero_stage=2", "tensor_parallel=2")),
    ("llama-3.1-8b", 16, "h100", ()),
    ("gpt-175b", 128, "h100", ("recompute=full",)),
]  # fmt: skip


def complaints(folder: Path) -> list[str]:
    report = lint([str(folder)])
    assert report.files
    return [f"{f.file}:{f.line} {f.rule}: {f.message}" for f in report.findings]


def site(run_dir: Path, **more: Any) -> Site:
    return Site(
        run_root=str(run_dir), partition="dev", account="team", time_limit="1:00:00", node="p6-b200",
        network_profile="efa", **more,
    )  # fmt: skip


@pytest.mark.parametrize("environment", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
@pytest.mark.parametrize(("model", "gpus", "gpu", "fix"), LAYOUTS)
def test_megatron_deepspeed(
    model: str, gpus: int, gpu: str, fix: tuple[str, ...], environment: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    spec = training_job(folder, plan_for(model, gpus, gpu, fix), model=model, gpu=gpu, site=site(folder))
    put(recipes.render(with_environment(spec, **environment) if environment else spec), folder)
    assert complaints(folder) == []


def smoke(folder: Path) -> JobSpec:
    return job(
        folder,
        Profile(name="smoke", recipe="smoke"),
        scheduler="slurm",
        gpus=16,
        gpus_per_node=8,
        nodes=2,
        site=site(folder),
    )


def custom(folder: Path) -> JobSpec:
    profile = Profile(
        name="mine", recipe="custom", custom=Custom(command="python3 train.py --lr 1e-4"), training=Training()
    )
    return job(folder, profile, scheduler="slurm", gpus=16, gpus_per_node=8, nodes=2, site=site(folder))


def megatron_lm(folder: Path) -> JobSpec:
    return lm_job(folder, "llama-3.1-8b", 16, ("context_parallel=2",), site=site(folder))


def qlora(folder: Path) -> JobSpec:
    return qlora_job(folder, gpus=16, site=site(folder))


def llama(folder: Path) -> JobSpec:
    weights = folder.parent / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    (weights / "data.json").write_text("[]")
    return llama_job(folder, weights, site=site(folder))


@pytest.mark.parametrize("environment", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
@pytest.mark.parametrize("make", [smoke, custom, qlora, llama, megatron_lm])
def test_other_recipes(make: Any, environment: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    spec = make(folder)
    if make is custom and environment.get("kind") == "pyxis":
        pytest.skip("a command of the user's own cannot be put into a pyxis image")
    put(recipes.render(with_environment(spec, **environment) if environment else spec), folder)
    assert complaints(folder) == []


def test_what_ships_is_clean() -> None:
    """Scripts, templates that are files as they stand, and what the tests of other rooms keep."""
    root = Path(__file__).resolve().parents[2]
    folders = [root / "templates", root / "scripts", root / ".ci"]
    report = lint([str(f) for f in folders if f.is_dir()])
    assert [f"{f.file}:{f.line} {f.rule}: {f.message}" for f in report.findings] == []
