"""Every recipe with every layout, way to find software and site: thousands of jobs whose files are all right."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.hardware.catalogue import node_for
from gpt_tune.layouts import legality
from gpt_tune.layouts.rule import Setting
from gpt_tune.lint.report import lint
from gpt_tune.models import catalogue
from gpt_tune.recipes.base import Rendered
from tests.recipes import stubs
from tests.recipes.combinations import (
    ENVIRONMENTS,
    PLANS,
    SITES,
    TRAINERS,
    combined,
    cores,
    plans,
    pretraining,
)
from tests.recipes.specs import put
from tests.recipes.test_megatron_command import parsed

LEAST = 2000
# Texts, numbers, options and lists of flags differ from job to job; what is left is the structure of a script.
_LINES = re.compile(r"^(?:#.*| +--[\w-]+(?: [^\s$]+)*)\n", re.MULTILINE)
_TEXT = re.compile(r"\$?'(?:[^'\n\\]|\\.)*'|\"[^\"\n]*\"|(?<=[= (:])/[^\s)\"']+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


def structure(script: bytes) -> str:
    """A script without what its profile and site say."""
    return _NUMBER.sub("0", _TEXT.sub("S", _LINES.sub("", script.decode())))


def check_json(rendered: Rendered) -> None:
    for file in rendered.files:
        if file.path.endswith(".json"):
            json.loads(file.content)


def check_syntax(paths: Iterable[Path]) -> list[str]:
    """Scripts that bash cannot read, by one shell that starts one parser each."""
    names = "\0".join(str(p) for p in paths) + "\0"
    done = subprocess.run(
        ["bash", "-c", "while IFS= read -r -d '' f; do bash -n \"$f\" || echo \"$f\"; done"],
        input=names.encode(), capture_output=True, check=True, timeout=300,
    )  # fmt: skip
    return (done.stdout + done.stderr).decode().splitlines()


def complaints(folder: Path) -> list[str]:
    return [f"{f.file}:{f.line} {f.rule}: {f.message}" for f in lint([str(folder)]).findings]


class Everything:
    """All combinations, rendered once. distinct: a job of each structure, with its folder."""

    def __init__(self, folder: Path) -> None:
        self.count = 0
        self.folder = folder
        self.distinct: dict[str, tuple[Rendered, Path]] = {}
        self.scripts: list[Path] = []
        scripts = folder / "scripts"
        scripts.mkdir()
        for name, made in cores(folder).items():
            for core, environment, site in itertools.product(made, ENVIRONMENTS, SITES):
                if name == "custom" and environment.kind == "pyxis":
                    continue  # a command of the user's own cannot be put into such an image
                self.count += 1
                run = folder / "runs" / f"r{self.count}"
                rendered = recipes.render(combined(core, run, environment, site))
                check_json(rendered)
                script = next(f.content for f in rendered.files if f.path == rendered.script)
                path = scripts / f"{self.count}.sbatch"
                path.write_bytes(script)
                self.scripts.append(path)
                self.distinct.setdefault(structure(script), (rendered, run))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Everything:
    return Everything(tmp_path_factory.mktemp("all of it"))


@pytest.mark.xdist_group("combinations")
def test_every_file_parses(everything: Everything) -> None:
    assert everything.count >= LEAST
    assert len(everything.distinct) >= 150
    assert check_syntax(everything.scripts) == []


@pytest.mark.xdist_group("combinations")
def test_sixty_structures_pass_our_own_lint(everything: Everything) -> None:
    found = []
    for rendered, run in list(everything.distinct.values())[:: max(1, len(everything.distinct) // 60)]:
        put(rendered, run)
        found += complaints(run)
    assert found == []


@pytest.mark.slow
@pytest.mark.xdist_group("combinations")
def test_every_structure_passes_our_own_lint(everything: Everything) -> None:
    found = []
    for rendered, run in everything.distinct.values():
        put(rendered, run)
        found += complaints(run)
    assert found == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.xdist_group("combinations")
def test_every_structure_passes_shellcheck(everything: Everything) -> None:
    paths = [run / rendered.script for rendered, run in everything.distinct.values()]
    for rendered, run in everything.distinct.values():
        put(rendered, run)
    for start in range(0, len(paths), 20):
        command: list[Any] = ["shellcheck", "--shell=bash", *paths[start : start + 20]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[:3000]


def check_arithmetic(
    found: dict[str, list[str]], gpus: int, config: dict[str, Any], seq_variable: str
) -> None:
    """What Megatron-DeepSpeed and DeepSpeed assert at start, from the command itself."""

    def value(name: str, default: int = 1) -> int:
        return int(found[name][0]) if name in found else default

    tp, pp = value("--tensor-model-parallel-size"), value("--pipeline-model-parallel-size")
    cp = value("--ds-sequence-parallel-size")
    assert gpus % (tp * pp * cp) == 0
    dp = gpus // (tp * pp * cp)
    micro, batch = value("--micro-batch-size"), value("--global-batch-size")
    assert batch % (micro * dp) == 0
    heads, seq = value("--num-attention-heads"), value("--seq-length")
    for count in (heads, value("--num-key-value-heads", heads), value("--ffn-hidden-size")):
        assert count % tp == 0
    assert value("--max-position-embeddings") >= seq
    assert float(found["--min-lr"][0]) <= float(found["--lr"][0])
    stage = value("--zero-stage")
    assert config["zero_optimization"]["stage"] == stage
    assert config["train_batch_size"] == micro * config["gradient_accumulation_steps"] * dp == batch
    if stage >= 2:
        assert pp == 1
        assert "--no-pipeline-parallel" in found
    if cp > 1:
        assert (tp, pp) == (1, 1)
        assert "--sequence-parallel" not in found
        assert seq % cp == heads % cp == 0
    if "--sequence-parallel" in found:
        assert tp > 1
        assert seq % tp == 0
        assert seq_variable == "1"
    assert ("--save" in found) == ("--save-interval" in found)
    assert "--deepspeed-activation-checkpointing" not in found or "--checkpoint-activations" in found


@pytest.mark.xdist_group("combinations")
def test_every_command_is_one_the_trainer_takes(tmp_path: Path) -> None:
    checkout = stubs.trainer(tmp_path / "mds")
    for ending in (".idx", ".bin"):
        (tmp_path / f"data{ending}").write_bytes(b"x")
    load = tmp_path / "load"
    load.mkdir()
    (load / "latest").write_text("global_step1")
    seen = plans(TRAINERS, PLANS)
    for number, (core, (model, gpu, plan)) in enumerate(
        zip(pretraining("megatron-deepspeed", TRAINERS, PLANS), seen)
    ):
        spec = core(tmp_path / f"run {number}")
        setting = Setting(
            model=catalogue.get(model), node=node_for(gpu, spec.gpus_per_node), trainer=plan.trainer, gpus=spec.gpus,
            seq_length=catalogue.get(model).seq_length,
        )  # fmt: skip
        assert list(legality.problems(plan.layout, setting)) == []
        training = spec.profile.training
        environment = {
            "DATA_PATH": "" if training.data == "synthetic" else str(tmp_path / "data"),
            "SAVE_DIR": str(tmp_path / f"save {number}"), "LOAD_DIR": str(load) if training.load else "",
            "MEGATRON_PATH": checkout, "PREFLIGHT": "0", "SLURM_NTASKS": str(spec.gpus),
            "SLURM_JOB_NUM_NODES": str(spec.nodes),
        }  # fmt: skip
        outcome = stubs.run(
            put(recipes.render(spec), spec.run_dir), tmp_path / f"start{number}", slurm=True, **environment
        )
        assert outcome.code == 0, outcome.output
        words = outcome.arguments
        program = next(i for i, w in enumerate(words) if w.endswith("/pretrain_gpt.py"))
        (config,) = Path(spec.run_dir).glob("ds_config-*.json")
        variable = outcome.ranks["0"][0].environment.get("CUDA_DEVICE_MAX_CONNECTIONS", "")
        check_arithmetic(parsed(words[program + 1 :]), spec.gpus, json.loads(config.read_text()), variable)
