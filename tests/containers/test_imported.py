"""The image that is fetched, not built: its address, what is refused, and the job that makes its file."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gpt_tune import rendering
from gpt_tune.containers import imported, shelf
from gpt_tune.containers.imported import Imported
from gpt_tune.errors import UserError
from gpt_tune.lint.report import lint
from tests.containers.support import golden, program
from tests.recipes.specs import DiskFiles
from tests.recipes.test_hostile import VALUES

NAME = "egslingjun/training-nv-pytorch"
_ENROOT = """#!/bin/bash
printf '%s\\0' "$@" >"$STUB_OUT/enroot.argv"
while [[ $1 != --output ]]; do shift; done
echo image >"$2"
exit "${ENROOT_CODE:-0}"
"""


def image(*settings: str) -> Imported:
    return imported.with_settings(Imported(), settings)


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ((), f"egslingjun-registry.cn-wulanchabu.cr.aliyuncs.com#{NAME}:25.10-serverless"),
        (("release=25.06",), f"egslingjun-registry.cn-wulanchabu.cr.aliyuncs.com#{NAME}:25.06-serverless"),
        (("vpc_region=cn-beijing",), f"acs-registry-vpc.cn-beijing.cr.aliyuncs.com#{NAME}:25.10-serverless"),
        (("image=my.io:5000/team/x:1",), "my.io:5000#team/x:1"),
        (("image=my.io#x@sha256:abc",), "my.io#x@sha256:abc"),
    ],
)  # fmt: skip
def test_addresses(settings: tuple[str, ...], address: str) -> None:
    assert image(*settings).address == address


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("release=25.1", "25.10"),
        ("release=26.04", "tag"),
        ("relese=25.10", "release"),
        ("efa=1.50.0", "acs"),
        ("release", "no '='"),
        ("image=a/b", "no tag"),
        ("image=a b:1", "no image's address"),
        ("image=$(id):1", "no image's address"),
        ("image=-x:1", "no image's address"),
        ("sqsh=x.sqsh", "absolute"),
        ("sqsh=/a\nb", "line break"),
        ("vpc_region=$(id)", "no region"),
    ],
)
def test_what_cannot_be_fetched(setting: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        image(setting)
    assert words in str(error.value)


def fetch(
    tmp_path: Path, sqsh: str, **environment: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    folder, out, scratch = tmp_path / "job", tmp_path / "said", tmp_path / "scratch"
    rendering.write(DiskFiles(), str(folder), imported.files(image(f"sqsh={sqsh}"), str(folder)))
    for path in (out, scratch):
        path.mkdir()
    program(tmp_path / "bin" / "enroot", _ENROOT)
    done = subprocess.run(
        ["bash", str(folder / "import.sbatch")], capture_output=True, text=True, check=False, timeout=30,
        env={
            **os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "STUB_OUT": str(out), "NEED_GIB": "0",
            "SCRATCH": str(scratch), **environment,
        },
    )  # fmt: skip
    assert list(scratch.iterdir()) == []
    said = out / "enroot.argv"
    return done, said.read_bytes().decode().split("\0")[:-1] if said.exists() else []


def test_it_fetches_once_and_leaves_one_file(tmp_path: Path) -> None:
    sqsh = tmp_path / "images" / "acs.sqsh"
    done, words = fetch(tmp_path, str(sqsh))
    assert done.returncode == 0, done.stderr
    assert sqsh.read_text() == "image\n"
    assert list(sqsh.parent.iterdir()) == [sqsh]
    assert words[-1].startswith("docker://egslingjun-registry.cn-wulanchabu.cr.aliyuncs.com#egslingjun/")


def test_what_was_there_stays_when_the_registry_refuses(tmp_path: Path) -> None:
    sqsh = tmp_path / "acs.sqsh"
    sqsh.write_text("yesterday's")
    done, _ = fetch(tmp_path, str(sqsh), ENROOT_CODE="3")
    assert done.returncode == 3
    assert sqsh.read_text() == "yesterday's"


@pytest.mark.parametrize(
    "kind", ["spaces", "single quotes", "double quotes", "substitution", "operators", "unicode", "globs"]
)
def test_any_path_arrives(kind: str, tmp_path: Path) -> None:
    sqsh = f"{tmp_path}/i {VALUES[kind].strip().replace('/', '_')}/x.sqsh"
    done, _ = fetch(tmp_path, sqsh)
    assert done.returncode == 0, done.stderr
    assert Path(sqsh).read_text() == "image\n"
    assert not list(tmp_path.rglob("PWNED"))


@pytest.mark.parametrize("file", ["import.sbatch", "README.md", "versions.json"])
def test_files_are_as_reviewed(file: str) -> None:
    text = next(f.content for f in imported.files(image(), "/fsx/images/acs") if f.path == file).decode()
    assert text == golden(f"acs/{file}", text)


def test_linters_find_nothing(tmp_path: Path) -> None:
    rendering.write(DiskFiles(), str(tmp_path / "a"), shelf.take("acs").files(str(tmp_path / "a")))
    assert [f.message for f in lint([str(tmp_path / "a")]).findings] == []
    assert json.loads((tmp_path / "a" / "versions.json").read_text())["recipes"] == ["acs"]
