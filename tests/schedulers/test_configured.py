"""A SLURM_CONF that points nowhere is named at once, and a controller that hangs is waited for once."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.ledger import Ledger
from gpt_tune.schedulers import slurm_conf
from gpt_tune.schedulers.base import ENDED, Unreachable
from gpt_tune.schedulers.local_files import LocalFiles
from gpt_tune.schedulers.slurm_cli import NotConfigured, SlurmCli
from tests import cluster as private_cluster
from tests.cluster import SlurmCluster, processes
from tests.jobs.helpers import prepared, refreshed_until, rendered

TEXTS = {
    "ClusterName=x\n": "",
    "  clustername = x\n": "",
    "# ClusterName=x\ninclude other.conf\n": "",
    "": "names no cluster",
    "# ClusterName=x\n": "names no cluster",
    "root:x:0:0\n": "names no cluster",
}


@pytest.mark.parametrize(("text", "words"), TEXTS.items())
def test_what_a_slurm_conf_must_hold(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(text)
    problem = slurm_conf.problem(str(path), LocalFiles())
    assert (words in problem) if words else problem == ""


@pytest.fixture
def commands(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm commands that would wait for a minute, as the real ones do for a missing file."""
    folder = home / "bin"
    folder.mkdir()
    for name in ("sinfo", "scontrol", "squeue", "sbatch"):
        (folder / name).write_text("#!/bin/sh\nsleep 60\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return home


@pytest.mark.parametrize("make", ["missing", "folder", "other"])
def test_a_wrong_one_is_named_at_once(commands: Path, monkeypatch: pytest.MonkeyPatch, make: str) -> None:
    path = commands / "slurm.conf"
    if make == "folder":
        path.mkdir()
    if make == "other":
        path.write_text("[section]\nkey = 1\n")
    monkeypatch.setenv("SLURM_CONF", str(path))
    begin = time.monotonic()
    assert clusters.available() == ["local"]
    (error,) = clusters.silent().values()
    assert str(path) in error.message
    assert "unset" in error.hint
    with pytest.raises(NotConfigured, match="SLURM_CONF"):
        clusters.connect()
    with pytest.raises(NotConfigured, match="SLURM_CONF"):
        SlurmCli().discover()
    assert clusters.connect("local").kind == "local"
    assert time.monotonic() - begin < 5


def test_dev_null_means_no_cluster(home: Path) -> None:
    assert clusters.silent() == {}


def test_one_that_slurm_cannot_parse_is_told_in_its_words(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home / "bin"
    folder.mkdir()
    for name in ("sinfo", "scontrol"):
        (folder / name).write_text(
            '#!/bin/sh\necho "scontrol: fatal: Unable to process configuration file" >&2; exit 1'
        )
        (folder / name).chmod(0o755)
    (home / "slurm.conf").write_text("ClusterName=toy\nNonsense Yes\n")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_CONF", str(home / "slurm.conf"))
    (found,) = clusters.silent().items()
    assert found[0] == "toy"
    assert "Unable to process configuration file" in found[1].message
    monkeypatch.delenv("SLURM_CONF")
    assert clusters.silent() == {}


@pytest.mark.slurm
def test_a_hung_controller_is_waited_for_once(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_PROBE_SECONDS", 1.0)
    asked: list[float] = []
    real = SlurmCli.check_reachable

    def counted(self: SlurmCli, within_seconds: float = 0.0) -> None:
        asked.append(within_seconds)
        real(self, within_seconds)

    monkeypatch.setattr(SlurmCli, "check_reachable", counted)
    with slurm.controller_frozen():
        assert clusters.available() == ["local"]
        (error,) = clusters.silent().values()
        assert isinstance(error, Unreachable)
        assert asked == [1.0]  # two questions, one wait
    monkeypatch.setattr(clusters, "_hung", [])
    assert clusters.available() == ["testbed", "local"]


@pytest.mark.skipif(
    "GPT_TUNE_SLURM_VERSION" in os.environ, reason="nothing can stand in front of another version's commands"
)
@pytest.mark.slurm
def test_a_configuration_that_only_administrators_see(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster can be used all the same: its name stands in the file, and sacct says itself that there is none."""
    real = shutil.which("scontrol", path=slurm.env["PATH"])
    stub = tmp_path / "bin" / "scontrol"
    stub.parent.mkdir()
    denied = 'echo "slurm_load_ctl_conf error: Access/permission denied" >&2; exit 1'
    stub.write_text(f'#!/bin/sh\nif [ "$*" = "show config" ]; then {denied}; fi\nexec {real} "$@"\n')
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:{slurm.env['PATH']}")
    scheduler, ledger = clusters.connect(), Ledger.open()
    found = scheduler.discover()
    assert (found.name, found.partitions[0].gpus_total) == ("testbed", 64)
    assert found.version
    assert scheduler.running_since() is None
    assert scheduler.history(["1"], "2026-01-01T00:00:00Z") == {}
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "exit 3"), scheduler, ledger)
    assert refreshed_until(ledger, record.run_id, lambda r: r.state in ENDED).exit_code == 3


@pytest.mark.slurm
def test_without_munge_it_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's ping calls the controller down then."""
    if reason := private_cluster.missing_reason():
        pytest.skip(reason)
    cluster = private_cluster.start()
    try:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        monkeypatch.setenv("PATH", cluster.env["PATH"])
        monkeypatch.setattr(clusters, "_hung", [])
        pid = processes.read_pid(cluster.folder / "munge" / "pid")
        assert pid is not None
        processes.kill([pid], (signal.SIGTERM, signal.SIGKILL))
        with pytest.raises(Unreachable, match="munge does not work"):
            SlurmCli().check_reachable()
        assert "munge" in clusters.silent()["testbed"].message
    finally:
        cluster.stop()
