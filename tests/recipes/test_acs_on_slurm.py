"""An acs job under a real Slurm: ranks over nodes, one program for the benchmark, in an image that is a stub."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.profiles.acs import Acs
from gpt_tune.profiles.schema import Environment, Site
from tests.recipes.acs_support import SCRIPT, acs_job, written

pytestmark = pytest.mark.slurm

# Runs what stands behind the image, as if inside it.
_APPTAINER = """#!/bin/bash
shift
while [[ $1 == --* ]]; do [[ $1 != --bind ]] || shift; shift; done
shift
exec "$@"
"""
# One line of JSON for each start: its words and the variables that ranks meet by.
_PROGRAM = """#!/bin/bash
printf '{"rank":"%s","world":"%s","interface":"%s","words":"%s"}\\n' \\
  "${RANK:-}" "${WORLD_SIZE:-}" "${NCCL_SOCKET_IFNAME:-}" "$*" >"$STUB_OUT/$(basename "$0")-${RANK:-one}-$$"
"""


def submit(folder: Path, tmp_path: Path) -> list[dict[str, Any]]:
    """Run job.sbatch to its end; what the image's programs said."""
    out, stubs = tmp_path / "out", tmp_path / "bin"
    for path in (out, stubs):
        path.mkdir()
    for name, text in (("apptainer", _APPTAINER), ("python3", _PROGRAM), ("ljperf", _PROGRAM)):
        (stubs / name).write_text(text)
        (stubs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{stubs}:{os.environ['PATH']}",
        "STUB_OUT": str(out),
        "PREFLIGHT": "0",
    }
    done = subprocess.run(
        ["sbatch", "--parsable", str(folder / "job.sbatch")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 90
    while not (folder / "exit_code").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    log = "".join(p.read_text() for p in (folder / "logs").iterdir())
    assert (folder / "exit_code").read_text() == "0\n", log
    return [json.loads(p.read_text()) for p in sorted(out.iterdir())]


def in_apptainer(folder: Path, acs: Acs, image: Path, **changes: Any) -> Path:
    image.write_text("")
    environment = Environment(kind="apptainer", image=str(image))
    site = Site(partition="dev", time_limit="10", environment=environment)
    return written(acs_job(folder, acs, site=site, **changes))


def test_ranks_over_nodes(slurm: object, tmp_path: Path) -> None:
    folder = in_apptainer(tmp_path / "r 1", SCRIPT, tmp_path / "acs.sif", gpus=4, per_node=2)
    said = submit(folder, tmp_path)
    assert sorted(s["rank"] for s in said) == ["0", "1", "2", "3"]
    assert {s["world"] for s in said} == {"4"}
    assert {s["interface"] for s in said} == {"eth0"}
    assert all("/workspace/train.py" in s["words"] for s in said)
    assert all("--gradient_accumulation_steps 16" in s["words"] for s in said)


def test_the_benchmark_starts_once(slurm: object, tmp_path: Path) -> None:
    acs = dataclasses.replace(Acs(), checkpoint_optimization=True)
    folder = in_apptainer(tmp_path / "r 2", acs, tmp_path / "acs.sif", gpus=4, per_node=4)
    said = submit(folder, tmp_path)
    assert [s["words"] for s in said] == ["benchmark --model deepspeed/llama3-8b"]
    assert said[0]["rank"] == ""
