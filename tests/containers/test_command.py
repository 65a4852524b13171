"""`gpt-tune containers`: what it lists, writes and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def gpt_tune(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tui", "containers", *arguments],
        capture_output=True, text=True, check=False, cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"},
    )  # fmt: skip


def test_the_list_and_one_of_it() -> None:
    listed = json.loads(gpt_tune("--json").stdout)
    assert listed["schema"] == "gpt-tune/containers/1"
    assert {c["name"] for c in listed["containers"]} == {"pretraining", "qlora", "acs"}
    one = json.loads(gpt_tune("qlora", "--json").stdout)["containers"]
    assert one[0]["problems"] == []
    assert all(p["source"] for p in one[0]["parts"])


def test_render_writes_the_folder(tmp_path: Path) -> None:
    done = gpt_tune("render", "pretraining", "--json", "--set", "efa=1.50.0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["schema"], answer["out"]) == ("gpt-tune/render/1", f"{tmp_path}/pretraining")
    assert {f["path"] for f in answer["render"]} >= {
        "Dockerfile",
        "build.sbatch",
        "README.md",
        "versions.json",
    }
    assert "EFA_INSTALLER_VERSION=1.50.0" in (tmp_path / "pretraining" / "Dockerfile").read_text()
    assert (tmp_path / "pretraining" / "logs").is_dir()
    again = gpt_tune("render", "pretraining", cwd=tmp_path)
    assert again.returncode == 2
    assert "not empty" in again.stderr
    assert gpt_tune("render", "pretraining", "--force", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("render",), "Name a container"),
        (("render", "qlra"), "'qlora'"),
        (("render", "acs", "--set", "release=25.1"), "25.10"),
        (("acs", "--set", "efa=1.50.0"), "of the container acs"),
        (("qlora", "pretraining"), "One name"),
        (("render", "qlora", "--set", "efa=1.47.0"), "hang in large broadcasts"),
        (("render", "qlora", "--set", "nccl=2.28.9"), "deadlock"),
        (("qlora", "--out", "x"), "belong to"),
        (("--set", "efa=1.50.0"), "needs the name"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_written(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = gpt_tune(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_showing_refused_versions_is_a_finding() -> None:
    done = gpt_tune("qlora", "--set", "nccl=2.28.9", "--json")
    assert done.returncode == 1
    assert "deadlock" in json.loads(done.stdout)["containers"][0]["problems"][0]["text"]
