"""Complaints of a real Slurm, by srun inside a job and by sbatch of an ordinary user: each explained by its row."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpt_tune.diagnosis import diagnose
from gpt_tune.schedulers import refusals
from tests import cluster as private_cluster
from tests.cluster import SlurmCluster

pytestmark = pytest.mark.slurm

# Row of the failure catalogue, what the job does, words of Slurm that must be in its log.
IN_A_JOB = [
    ("F89", "srun -n1 /no/such/python train.py", "execve(): /no/such/python"),
    ("F90", "srun -n1 --mpi=nosuch true", "mpi"),  # some builds have pmix
    (
        "F88",
        "srun -n1 --gres=gpu:8 sleep 20 &\nuntil squeue -h -s -j $SLURM_JOB_ID | grep -q '\\.0'; do :; done\n"
        "srun -n1 --immediate=1 --gres=gpu:8 true",
        "nodes are busy",
    ),
    ("F79", "srun -n1 -N1 bash -c 'exit 3'", "Exited with exit code 3"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "body", "words"), IN_A_JOB, ids=[r[0] for r in IN_A_JOB])
def test_in_a_job(slurm: SlurmCluster, tmp_path: Path, row: str, body: str, words: str) -> None:
    log = tmp_path / "log"
    (tmp_path / "job.sh").write_text(
        f"#!/bin/bash\n#SBATCH -N1 --ntasks=2 --gres=gpu:b200:8\n#SBATCH --output={log}\n{body}\n"
        "code=$?\nkill %1 2>/dev/null\nexit $code\n"
    )
    job = slurm.run("sbatch", "--parsable", f"--chdir={tmp_path}", str(tmp_path / "job.sh"))
    slurm.wait_for_state(job, "FAILED", "COMPLETED", seconds=60)
    text = log.read_text()
    assert words in text
    found = {f.id: f for f in diagnose([str(log)], "FAILED").findings}
    assert row in found, (text, list(found))
    assert found[row].fix


@pytest.fixture(scope="module")
def closed(slurm_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """One with partitions that not everybody may use."""
    closed_ones = {"staff": "AllowGroups=daemon", "rooted": "RootOnly=YES"}
    extra = "\n".join(f"PartitionName={n} Nodes=b200-[1-2] {limit}" for n, limit in closed_ones.items())
    cluster = private_cluster.start(extra=extra, name="closed")
    yield cluster
    cluster.stop()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become an ordinary user")
@pytest.mark.parametrize(
    ("options", "row", "words"),
    [
        (["-p", "staff"], "F84", "group not permitted"),
        (["-p", "rooted"], "F203", "ermission denied"),
        (["-w", "h100-1", "-p", "dev"], "F81", "node configuration is not available"),
        (["-N1", "--ntasks-per-node=3", "--mem=1G", "--mem-per-cpu=1G"], "F85", "mutually exclusive"),
        (["-L", "nosuch:1"], "F84", "Invalid license"),
    ],
    ids=["group", "root-only", "other-nodes", "memory", "licence"],
)
def test_an_ordinary_user_is_refused(closed: SlurmCluster, options: list[str], row: str, words: str) -> None:
    sbatch = shutil.which("sbatch", path=closed.env["PATH"])
    assert sbatch is not None
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sbatch, "-D", "/tmp", "-o", "/dev/null",
         *options, "--wrap=true"],
        env=closed.env, capture_output=True, text=True, timeout=60, check=False, cwd="/",
    )  # fmt: skip
    if done.returncode and "unshare" in done.stderr:
        pytest.skip("this version of Slurm can only be run by root here")
    assert done.returncode != 0
    error = refusals.refused(done.stderr)
    assert words in error.message
    known = refusals.fix_for(done.stderr)
    assert known is not None
    assert (known.id, error.hint) == (row, known.fix)
