"""The private cluster itself: its shape, several at once, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import cluster as private_cluster
from tests.cluster import SlurmCluster, processes, wait_until

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).resolve().parents[2]


def test_shape(slurm: SlurmCluster) -> None:
    def rows_now() -> list[str]:
        return slurm.run("sinfo", "-h", "-o", "%P %l %D %T %G").splitlines()

    # On a busy machine the last nodes answer a moment after the first.
    wait_until(lambda: not any("unknown" in row for row in rows_now()), 30, "every node's answer")
    rows = rows_now()
    assert "dev* 2:00:00 8 idle gpu:b200:8" in rows
    assert "long 7-00:00:00 1 drained gpu:h100:8" in rows
    assert "long 7-00:00:00 3 idle gpu:h100:8" in rows


def test_64_tasks_over_8_nodes(slurm: SlurmCluster, tmp_path: Path) -> None:
    out = slurm.run(
        "srun", "-N8", "-n64", "--gres=gpu:b200:8", "bash", "-c", "echo $SLURMD_NODENAME $SLURM_PROCID"
    )
    pairs = [line.split() for line in out.splitlines()]
    assert sorted(int(rank) for _, rank in pairs) == list(range(64))
    assert {node for node, _ in pairs} == {f"b200-{i}" for i in range(1, 9)}


def test_two_at_once_do_not_meet(slurm: SlurmCluster) -> None:
    other = private_cluster.start(name="other")
    try:
        assert "other" in other.run("scontrol", "show", "config")
        assert "testbed" in slurm.run("scontrol", "show", "config")
    finally:
        other.stop()
    assert not other.folder.exists()
    assert processes.of_cluster(other.folder) == []
    assert slurm.is_up()


def test_a_killed_owner_leaves_nothing() -> None:
    if reason := private_cluster.missing_reason():
        pytest.skip(reason)
    code = (
        "import os, signal\n"
        "from tests import cluster\n"
        "c = cluster.start(name='doomed')\n"
        "c.run('sbatch', '--parsable', '-o', '/dev/null', '--wrap', 'sleep 600')\n"
        "c.wait_for_state('1', 'RUNNING')\n"
        "print(c.folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder = Path(done.stdout.strip())
    wait_until(lambda: not folder.exists() and processes.of_cluster(folder) == [], 60, "the clean-up")


@pytest.mark.parametrize("folder", ["with blank", "x" * 90])
def test_impossible_folder_is_refused_in_words(folder: str, tmp_path: Path) -> None:
    if reason := private_cluster.missing_reason():
        pytest.skip(reason)
    with pytest.raises(RuntimeError, match="without blanks"):
        private_cluster.start(tmp_path / folder)


def test_controller_comes_back_with_its_jobs(slurm: SlurmCluster) -> None:
    job = slurm.run("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 600")
    slurm.wait_for_state(job, "RUNNING")
    with slurm.controller_down():
        assert not slurm.is_up()
    assert slurm.job_state(job) == "RUNNING"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become an ordinary user")
def test_an_ordinary_user_can_run_one() -> None:
    if reason := private_cluster.missing_reason():
        pytest.skip(reason)
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    # This interpreter may live in root's home; the cluster needs the standard library only.
    python = [*become, "/usr/bin/python3", "-B", "-c"]
    if subprocess.run(
        [*python, "import tests.cluster"], cwd=ROOT, capture_output=True, check=False
    ).returncode:
        pytest.skip("an ordinary user can run no Python on this checkout")
    code = (
        "from tests import cluster\n"
        "c = cluster.start(name='plain')\n"
        "print(c.run('srun', '-N2', '-n4', 'id', '-un'))\n"
        "c.stop()\n"
    )
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "USER": "nobody", "LOGNAME": "nobody"}
    done = subprocess.run(
        [*python, code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["nobody"] * 4, done.stderr
