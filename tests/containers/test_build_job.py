"""The enroot job, run with stub docker and enroot: what it leaves, cleans up, and hands to their command lines."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from tests.containers.support import program, put
from tests.recipes.test_hostile import VALUES

_DOCKER = """#!/bin/bash
printf '%s\\0' "$@" >"$STUB_OUT/docker.argv"
[[ -z ${SLOW:-} ]] || { touch "$STUB_OUT/started"; exec sleep 60; }
exit "${DOCKER_CODE:-0}"
"""
_ENROOT = """#!/bin/bash
printf '%s\\0' "$@" >"$STUB_OUT/enroot.argv"
printf '%s\\n' "$ENROOT_TEMP_PATH" "$ENROOT_CACHE_PATH" "$ENROOT_DATA_PATH" >"$STUB_OUT/enroot.paths"
echo layers >"$ENROOT_CACHE_PATH/layer"
while [[ $1 != --output ]]; do shift; done
echo image >"$2"
exit "${ENROOT_CODE:-0}"
"""


class Build:
    """A rendered build and how it is run."""

    def __init__(self, tmp_path: Path, *settings: str, folder: str = "out") -> None:
        self.sqsh = tmp_path / "images" / "image.sqsh"
        self.folder = put(tmp_path / folder, "qlora", f"sqsh={self.sqsh}", *settings)
        self.scratch, self.out = tmp_path / "scratch", tmp_path / "said"
        for path in (self.scratch, self.out):
            path.mkdir()
        for name, text in (("docker", _DOCKER), ("podman", _DOCKER), ("enroot", _ENROOT)):
            program(tmp_path / "bin" / name, text)
        self.environment = {
            **os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "STUB_OUT": str(self.out),
            "SCRATCH": str(self.scratch), "NEED_GIB": "0",
        }  # fmt: skip

    def start(self, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(self.folder / "build.sbatch")],
            env={**self.environment, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, **environment: str) -> tuple[int, str]:
        process = self.start(**environment)
        output, _ = process.communicate(timeout=30)
        return process.returncode, output

    def said(self, name: str) -> list[str]:
        return (self.out / f"{name}.argv").read_bytes().decode().split("\0")[:-1]


def test_it_leaves_one_file_and_no_litter(tmp_path: Path) -> None:
    build = Build(tmp_path)
    code, output = build.run()
    assert code == 0, output
    assert build.sqsh.read_text() == "image\n"
    assert list(build.sqsh.parent.iterdir()) == [build.sqsh]
    assert list(build.scratch.iterdir()) == []
    assert build.said("docker") == [
        "build", "--target", "qlora", "--tag", "gpt-tune-qlora:25.04-py3",
        "--file", f"{build.folder}/Dockerfile", str(build.folder),
    ]  # fmt: skip
    assert build.said("enroot")[-1] == "dockerd://gpt-tune-qlora:25.04-py3"
    paths = (build.out / "enroot.paths").read_text().split()
    assert all(p.startswith(f"{build.scratch}/gpt-tune-build-") for p in paths)
    assert len(set(paths)) == 3


@pytest.mark.parametrize("which", ["DOCKER_CODE", "ENROOT_CODE"])
def test_a_failed_build_keeps_the_image_that_was_there(tmp_path: Path, which: str) -> None:
    build = Build(tmp_path)
    build.sqsh.parent.mkdir()
    build.sqsh.write_text("yesterday's")
    code, _ = build.run(**{which: "7"})
    assert code == 7
    assert build.sqsh.read_text() == "yesterday's"
    assert list(build.sqsh.parent.iterdir()) == [build.sqsh]
    assert list(build.scratch.iterdir()) == []


def test_a_cancelled_build_cleans_up_at_once(tmp_path: Path) -> None:
    build = Build(tmp_path)
    process = build.start(SLOW="1")
    deadline = time.monotonic() + 20
    while not (build.out / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert list(build.scratch.iterdir())
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 143, output
    assert list(build.scratch.iterdir()) == []
    assert not build.sqsh.exists()


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"NEED_GIB": "999999"}, "999999 are needed"),
        ({"NEED_GIB": "a[$(touch PWNED)]"}, "whole number"),
        ({"BUILDER": "kaniko"}, "docker or podman"),
        ({"SQSH": "image.sqsh"}, "absolute path"),
        ({"BUILD_DIR": "/nowhere"}, "no Dockerfile in /nowhere"),
    ],
)
def test_what_cannot_work_is_said_before_anything_runs(
    tmp_path: Path, environment: dict[str, str], words: str
) -> None:
    build = Build(tmp_path)
    code, output = build.run(**environment)
    assert code == 2
    assert words in output
    assert not (build.out / "docker.argv").exists()
    assert not list(tmp_path.rglob("PWNED"))


def test_a_node_without_enroot_says_so(tmp_path: Path) -> None:
    build = Build(tmp_path)
    (tmp_path / "bin" / "enroot").unlink()
    code, output = build.run(PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    assert (code, "enroot is not installed" in output) == (2, True)


def test_podman_is_asked_in_its_own_words(tmp_path: Path) -> None:
    build = Build(tmp_path, "builder=podman", "name=team/image", "tag=v1")
    code, output = build.run()
    assert code == 0, output
    assert build.said("enroot")[-1] == "podman://team/image:v1"


@pytest.mark.parametrize("kind", [k for k in VALUES if k != "long"])
def test_any_path_arrives_as_it_is_or_is_refused(tmp_path: Path, kind: str) -> None:
    value = VALUES[kind].strip().replace("/", "_")
    sqsh = f"{tmp_path}/images {value}/i.sqsh"
    try:
        build = Build(tmp_path, f"sqsh={sqsh}", folder=f"out {value}")
    except (UserError, ValueError):
        assert kind in ("line break", "return", "escape", "nul", "percent", "backslashes", "braces")
        return
    code, output = build.run()
    assert code == 0, output
    assert Path(sqsh).read_text() == "image\n"
    assert build.said("docker")[-1] == str(build.folder)
    assert not list(tmp_path.rglob("PWNED"))


@pytest.mark.parametrize("kind", VALUES)
def test_scheduler_options_are_one_line_each(tmp_path: Path, kind: str) -> None:
    try:
        folder = put(tmp_path / "out", "qlora", f"time_limit={VALUES[kind]}")
    except UserError:
        assert kind in ("line break", "return", "escape", "nul", "long")
        return
    lines = [x for x in (folder / "build.sbatch").read_text().splitlines() if x.startswith("#SBATCH")]
    names = [x.split("--", 1)[1].split("=")[0] for x in lines]
    assert len(names) == len(set(names))
    subprocess.run(["bash", "-n", str(folder / "build.sbatch")], check=True)
