"""The check of a finished image: what it says when NCCL chose EFA, sockets, or hung."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.containers.support import program, put
from tests.recipes.test_hostile import VALUES

EFA = """node1:9:9 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.20.0
node1:9:9 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 8 nics)
node1:9:9 [0] NCCL INFO Using network Libfabric
ok: 2 ranks, all-reduce bus bandwidth 367.1 GB/s
"""
SOCKETS = """node1:9:9 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so.
node1:9:9 [0] NCCL INFO NET/Socket : Using [0]ens32:10.0.0.5<0>
node1:9:9 [0] NCCL INFO Using network Socket
ok: 2 ranks, all-reduce bus bandwidth 1.7 GB/s
"""
TCP = """node1:9:9 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.20.0
node1:9:9 [0] NCCL INFO NET/OFI Selected Provider is tcp (found 1 nics)
node1:9:9 [0] NCCL INFO Using network AWS Libfabric
ok: 2 ranks, all-reduce bus bandwidth 2.0 GB/s
"""
_SRUN = """#!/bin/bash
[[ $1 != --help ]] || { echo " --container-image=x"; exit 0; }
printf '%s\\0' "$@" >"$STUB_OUT/srun.argv"
cat "$STUB_OUT/nccl"
exit "${SRUN_CODE:-0}"
"""


def check(
    tmp_path: Path, said: str, *settings: str, sqsh: str = "", **environment: str
) -> tuple[subprocess.CompletedProcess[str], Path]:
    image = Path(sqsh or tmp_path / "image.sqsh")
    image.parent.mkdir(parents=True, exist_ok=True)
    image.write_text("image")
    folder = put(tmp_path / "out", "pretraining", f"sqsh={image}", *settings)
    out = tmp_path / "said"
    out.mkdir()
    (out / "nccl").write_text(said)
    program(tmp_path / "bin" / "srun", _SRUN)
    program(tmp_path / "bin" / "scontrol", "#!/bin/bash\necho node1\necho node2\n")
    done = subprocess.run(
        ["bash", str(folder / "check.sbatch")], capture_output=True, text=True, check=False, timeout=30,
        env={
            **os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "STUB_OUT": str(out),
            "SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "node[1-2]", **environment,
        },
    )  # fmt: skip
    return done, out


def test_efa_is_what_it_should_be(tmp_path: Path) -> None:
    done, out = check(tmp_path, EFA)
    assert done.returncode == 0, done.stderr
    assert "NCCL uses EFA: NET/OFI Initializing aws-ofi-nccl 1.20.0" in done.stdout
    assert "367.1 GB/s" in done.stdout
    words = (out / "srun.argv").read_bytes().decode().split("\0")[:-1]
    assert f"--container-image={tmp_path}/image.sqsh" in words
    assert words[-3:] == ["python3", "/opt/gpt-tune/allreduce.py", "512"]


@pytest.mark.parametrize(
    ("said", "words"), [(SOCKETS, "but Socket"), (TCP, "but AWS Libfabric"), ("", "did not choose EFA")]
)
def test_anything_else_fails_although_the_sums_are_right(said: str, words: str, tmp_path: Path) -> None:
    done, _ = check(tmp_path, said)
    assert done.returncode == 2
    assert words in done.stderr
    assert "check-77.nccl" in done.stderr


@pytest.mark.parametrize(("code", "words"), [("124", "hung for 300 s"), ("1", "failed with code 1")])
def test_a_run_that_hangs_or_fails_is_said(code: str, words: str, tmp_path: Path) -> None:
    done, _ = check(tmp_path, EFA, SRUN_CODE=code)
    assert done.returncode == 2
    assert words in done.stderr


def test_without_efa_it_says_what_nccl_uses(tmp_path: Path) -> None:
    done, _ = check(tmp_path, EFA.replace("Libfabric", "IB"), "network=none")
    assert done.returncode == 0, done.stderr
    assert "NCCL uses IB" in done.stdout


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"SQSH": "/nowhere/x.sqsh"}, "build it first"),
        ({"MIB": "a[$(id)]"}, "whole number"),
        ({"SLURM_JOB_ID": ""}, "needs Slurm"),
    ],
)
def test_what_is_missing_is_said(environment: dict[str, str], words: str, tmp_path: Path) -> None:
    done, out = check(tmp_path, EFA, sqsh="", **environment)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert not (out / "srun.argv").exists()


@pytest.mark.parametrize(
    "kind", ["spaces", "single quotes", "double quotes", "substitution", "operators", "unicode", "globs"]
)
def test_any_image_path_arrives(kind: str, tmp_path: Path) -> None:
    sqsh = f"{tmp_path}/images {VALUES[kind].strip().replace('/', '_')}/i.sqsh"
    done, out = check(tmp_path, EFA, sqsh=sqsh)
    assert done.returncode == 0, done.stderr
    assert f"--container-image={sqsh}" in (out / "srun.argv").read_bytes().decode().split("\0")
    assert not list(tmp_path.rglob("PWNED"))
