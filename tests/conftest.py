"""Owns the fixtures every test may use: a home of its own, and a private Slurm cluster."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpt_tune.schedulers import local_runner
from tests import cluster as private_cluster
from tests.cluster import SlurmCluster

# A test run started in the background ignores Ctrl-C, and whatever it starts inherits that: a shell cannot
# even trap it. The programs under test must meet it as a user's would.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home: HOME and the XDG folders point into tmp_path, and no cluster is configured.

    Local jobs that a test leaves running end with it.
    """
    folder = tmp_path / "home"
    for variable, child in (
        ("HOME", ""),
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_STATE_HOME", ".local/state"),
        ("XDG_CACHE_HOME", ".cache"),
        ("XDG_DATA_HOME", ".local/share"),
    ):
        (folder / child).mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv(variable, str(folder / child))
    # /dev/null is no slurm.conf, so that a Slurm of this machine is never touched by a test.
    monkeypatch.setenv("SLURM_CONF", "/dev/null")
    yield folder
    _end_local_jobs(folder)


def _end_local_jobs(folder: Path) -> None:
    for record in (folder / ".local/state/gpt-tune/local").glob("local-*.json"):
        try:
            data = json.loads(record.read_text())
            state = json.loads(Path(data["state_file"]).read_text())
        except (OSError, ValueError):
            continue
        alive = local_runner.process_start(state["pid"]) == state["pid_start"]
        local_runner.kill_job(state["state_file"], state["pid"] if alive else -1, grace=0)


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """A private cluster of this test process (each xdist worker has its own). Prefer `slurm` in tests.

    GPT_TUNE_TEST_CLUSTER names the folder of one that runs already, for other versions of Slurm.
    """
    given = os.environ.get("GPT_TUNE_TEST_CLUSTER")
    if given:
        yield SlurmCluster(Path(given), Path(given).name)
        return
    reason = private_cluster.missing_reason()
    if reason:
        pytest.skip(reason)
    try:
        cluster = private_cluster.start()
    except RuntimeError as error:
        pytest.skip(f"no private Slurm here: {error}")
    yield cluster
    cluster.stop()


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """The private cluster, without jobs, with SLURM_CONF pointing at it and an empty home."""
    monkeypatch.setenv("SLURM_CONF", str(slurm_cluster.conf))
    monkeypatch.setenv("PATH", slurm_cluster.env["PATH"])
    yield slurm_cluster
    slurm_cluster.cancel_all()


@pytest.fixture(scope="session")
def accounting_cluster() -> Iterator[SlurmCluster]:
    """A private cluster with slurmdbd and enforced limits. Prefer `cluster_with_accounting` in tests."""
    reason = private_cluster.accounting_missing_reason()
    if reason:
        pytest.skip(reason)
    try:
        cluster = private_cluster.start(name="accounted", with_accounting=True)
    except RuntimeError as error:
        pytest.skip(f"no private Slurm with accounting here: {error}")
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster_with_accounting(
    accounting_cluster: SlurmCluster, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmCluster]:
    """As `slurm`, with accounting: associations, limits, QOS, and ends of jobs that slurmctld has forgotten."""
    monkeypatch.setenv("SLURM_CONF", str(accounting_cluster.conf))
    monkeypatch.setenv("PATH", accounting_cluster.env["PATH"])
    yield accounting_cluster
    accounting_cluster.cancel_all()
