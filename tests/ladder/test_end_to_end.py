"""Ladders run for real on this machine: a stub trainer prints step lines, the report says what each rung is worth."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Prints the lines of Megatron's log: steps of the given mean in ms, with a scatter of about 1 %.
_TRAINER = """
import sys
mean, steps = float(sys.argv[1]), 30
for i in range(1, steps + 1):
    ms = mean * (1 + 0.01 * ((i * 7) % 5 - 2) / 2)
    print(f" iteration {i:8d}/{steps:8d} | consumed samples: {i:12d} | elapsed time per iteration (ms): {ms:.1f} | "
          f"learning rate: 1.0E-04 | global batch size: 8 | lm loss: 1.0E+01 | loss scale: 1.0 | grad norm: 1.0 |",
          flush=True)
"""
# An image is a step time; the compiler and the recompute optimisation take their share off.
_DOCKER = """#!/bin/bash
while [[ $1 != *:[0-9]* ]]; do shift; done
case $1 in base:1) ms=400 ;; accl:1) ms=380 ;; *) ms=350 ;; esac
[[ " $* " != *" --torch_compile True "* ]] || ms=$((ms - 60))
[[ ${CHECKPOINT_OPTIMIZATION:-} != true ]] || ms=$((ms - 20))
exec "$STUB_PYTHON" "$STUB_TRAINER" "$ms"
"""


@pytest.fixture
def trainer(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "trainer.py"
    file.write_text(_TRAINER)
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(_DOCKER)
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("STUB_PYTHON", sys.executable)
    monkeypatch.setenv("STUB_TRAINER", str(file))
    return file


def sweep(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tui", "sweep", *arguments],
        capture_output=True, text=True, check=False, timeout=120, cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_the_acs_ladder_from_profile_to_report(trainer: Path, tmp_path: Path) -> None:
    images = '{"base": "base:1", "communication": "accl:1"}'
    done = sweep(
        "acs-train", "--ladder", "acs", "--cluster", "local", "--json", "--set", "resources.gpus=1",
        "--set", "resources.gpus_per_node=1", "--set", "training.global_batch_size=8",
        "--set", f"acs.ladder_images={images}", "--set", f"site.run_root={tmp_path}/runs", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    rungs = answer["ladder"]
    assert [r["rung"] for r in rungs] == ["base", "+communication library", "+OS", "+compile", "+recompute"]
    assert [r["state"] for r in rungs] == ["COMPLETED"] * 5
    assert [round(r["step_time_ms"]) for r in rungs] == [400, 380, 350, 290, 270]
    assert rungs[0]["over_previous"] is None
    for below, above, ratio in zip(rungs, rungs[1:], (400 / 380, 380 / 350, 350 / 290, 290 / 270)):
        speed = above["over_previous"]
        assert speed["over"] == below["rung"]
        assert speed["ratio"] == pytest.approx(ratio, rel=0.002)
        assert speed["low"] < ratio < speed["high"]
        assert speed["verdict"] == "faster"
    assert rungs[4]["over_base"]["ratio"] == pytest.approx(400 / 270, rel=0.002)
    # The same again from the ledger, as a table in the order of the rungs.
    table = sweep("--collect", answer["sweep_id"], cwd=tmp_path)
    assert table.returncode == 0, table.stderr
    lines = table.stdout.splitlines()
    assert lines[0].split()[:3] == ["rung", "step", "ms"]
    assert max(map(len, lines)) <= 80
    assert [x.split()[0] for x in lines[1:]] == ["base", "+communication", "+OS", "+compile", "+recompute"]
    assert "cannot tell" not in table.stdout


def test_a_ladder_of_the_users_own(trainer: Path, tmp_path: Path) -> None:
    """Any recipe, from a file: a rung that changes nothing, one that is slower, one that fails."""
    file = tmp_path / "mine.toml"
    start = f"custom.command={shlex.quote(sys.executable)} {shlex.quote(str(trainer))}"
    file.write_text(
        f'[[rung]]\nname = "as it is"\nset = ["{start} 100"]\n[[rung]]\nname = "same"\nset = ["{start} 100.1"]\n'
        f'[[rung]]\nname = "worse"\nset = ["{start} 130"]\n[[rung]]\nname = "broken"\nset = ["custom.command=false"]\n'
    )
    profile = tmp_path / "job.toml"
    profile.write_text(
        f'recipe = "custom"\ncluster = "local"\n[custom]\ncommand = "true"\n[site]\nrun_root = "{tmp_path}/runs"\n'
    )
    done = sweep(str(profile), "--ladder", str(file), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rungs = json.loads(done.stdout)["ladder"]
    assert [r["state"] for r in rungs] == ["COMPLETED"] * 3 + ["FAILED"]
    assert [r["over_previous"]["verdict"] if r["over_previous"] else None for r in rungs] == [
        None, "cannot tell", "slower", None,
    ]  # fmt: skip
    assert rungs[2]["over_base"]["ratio"] == pytest.approx(100 / 130, rel=0.01)


@pytest.mark.parametrize("more", [("--vary", "training.seed=1,2"), ("--top", "2"), ("--stop-losers",)])
def test_a_ladder_stands_alone(more: tuple[str, ...], tmp_path: Path, home: Path) -> None:
    done = sweep("acs-train", "--ladder", "acs", *more, cwd=tmp_path)
    assert done.returncode == 2
    assert "--ladder goes without" in done.stderr


def test_a_grid_has_no_ladder(trainer: Path, tmp_path: Path) -> None:
    profile = tmp_path / "job.toml"
    profile.write_text(
        f'recipe = "custom"\ncluster = "local"\n[custom]\ncommand = "{sys.executable} {trainer} 100"\n'
        f'[site]\nrun_root = "{tmp_path}/runs"\n'
    )
    done = sweep(str(profile), "--vary", "training.seed=1,2", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["ladder"] is None
