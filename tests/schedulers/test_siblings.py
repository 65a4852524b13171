"""Two clusters of one accounting database: the other one is found, looked at, submitted to and followed by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.schedulers import slurm_siblings
from gpt_tune.schedulers.base import SubmitRequest, Unreachable
from gpt_tune.schedulers.commands import Completed
from gpt_tune.schedulers.slurm_cli import SlurmCli
from tests import cluster as private_cluster
from tests.cluster import SlurmCluster, accounting, wait_until
from tests.jobs.helpers import prepared, refreshed_until, rendered
from tests.schedulers.test_accounting import Recorded

# One worker starts the cluster with accounting for all of these.
pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("accounting")]


@pytest.fixture
def second(cluster_with_accounting: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """A cluster beside, in the same database, behind the same munge."""
    first = cluster_with_accounting
    port = re.search(r"AccountingStoragePort=(\d+)", first.conf.read_text())
    assert port is not None
    first.run("sacctmgr", "-i", "add", "cluster", "second", check=False)
    extra = accounting.slurm_conf(first.folder, int(port.group(1)), enforce=False)
    extra += f"AuthInfo=socket={first.folder}/munge/socket"
    monkeypatch.setattr(slurm_siblings, "_known", {})
    cluster = private_cluster.start(name="second", extra=extra)
    wait_until(
        lambda: "second|127" in first.run("sacctmgr", "-nP", "show", "clusters", "format=cluster,controlhost"),
        30, "the second cluster in the database",
    )  # fmt: skip
    yield cluster
    cluster.stop()


def test_from_look_to_end(second: SlurmCluster, tmp_path: Path) -> None:
    assert clusters.connect().cluster == "accounted"
    scheduler = clusters.connect("second")
    found = scheduler.discover()
    assert (found.name, found.partitions[0].gpus_total) == ("second", 64)
    ledger = Ledger.open()
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "sleep 600", "--begin=now+1hour"), scheduler, ledger)
    assert record.cluster == "second"
    assert second.job_state(str(record.job_id)) == "PENDING"
    assert jobs.hold(record.run_id, ledger).reason == "JobHeldUser"
    jobs.release(record.run_id, ledger)
    jobs.cancel(record.run_id, ledger)
    assert refreshed_until(ledger, record.run_id, lambda r: not r.active).state == "CANCELLED"
    with pytest.raises(UserError, match="'secnd'") as caught:
        clusters.connect("secnd")
    assert "second" in caught.value.hint
    with pytest.MonkeyPatch.context() as chosen:  # as a user of -M may have it in the environment
        chosen.setenv("SLURM_CLUSTERS", "second")
        assert clusters.connect().cluster == "second"
        assert clusters.discover().name == "second"
    with second.controller_down(), pytest.raises(Unreachable, match="does not answer"):
        clusters.connect("second").discover()


def test_what_is_away_is_not_unknown(
    second: SlurmCluster,
    cluster_with_accounting: SlurmCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its controller, or the database through which it is reached: said, and the run keeps its last state."""
    ledger, scheduler = Ledger.open(), clusters.connect("second")
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "sleep 600"), scheduler, ledger)
    running = refreshed_until(ledger, record.run_id, lambda r: r.state == "RUNNING")
    monkeypatch.setattr(slurm_siblings, "_KEPT_SECONDS", 0.0)
    slurm_siblings._known.clear()
    with second.controller_down():  # ended in peace: its address is taken off the list
        with pytest.raises(Unreachable, match="second is not running"):
            clusters.connect("second")
        away(ledger, "not running", running)
    with cluster_with_accounting.accounting_down():
        for name in ("second", "secnd"):
            with pytest.raises(Unreachable, match="slurmdbd"):
                clusters.connect(name)
        with pytest.raises(Unreachable, match="slurmdbd"):
            scheduler.check_reachable()
        other = prepared(clusters.connect("accounted"), tmp_path / "runs")
        with pytest.raises(Unreachable, match="slurmdbd"):
            jobs.submit(other, rendered(other, "true"), scheduler, ledger)
        assert not Path(other.run_dir).exists()
        assert [r.run_id for r in ledger.runs()] == [record.run_id]
        with pytest.raises(Unreachable, match="slurmdbd"):  # sbatch's own words: nothing was sent
            scheduler.submit(SubmitRequest(record.script, record.run_dir, "x", "never"))
        away(ledger, "slurmdbd", running)
        assert clusters.connect("accounted").discover().name == "accounted"
    assert [r.state for r in jobs.refresh(ledger)] == ["RUNNING"]
    assert second.run("squeue", "-h", "-o", "%i") == record.job_id
    jobs.cancel(record.run_id, ledger)


def away(ledger: Ledger, words: str, before: RunRecord) -> None:
    assert [(r.state, r.phase) for r in jobs.refresh(ledger)] == [(before.state, before.phase)]
    poll = ledger.poll("second")
    assert poll.failures
    assert words in poll.error


def test_without_accounting_there_are_none(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_siblings, "_known", {})
    assert slurm_siblings.names(SlurmCli()) == ()
    with pytest.raises(UserError, match="Unknown cluster 'second'"):
        clusters.connect("second")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Completed(0, b"a|127.0.0.1\nb|10.0.0.1\nnever|\n", ""), ("b", "never")),
        (Completed(0, b"", ""), ()), (Completed(0, b"no table at all\n", ""), ()),
        (Completed(1, b"", "You are not running a supported accounting_storage plugin"), ()),
        (Completed(1, b"", "sacctmgr: error: Sending PersistInit msg: Connection refused"), None),
    ],
)  # fmt: skip
def test_what_sacctmgr_says(
    answer: Completed, expected: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_siblings, "_known", {})
    own = SlurmCli(Recorded({"sacctmgr": answer}))
    own._name = "a"
    if expected is None:
        with pytest.raises(Unreachable, match="slurmdbd"):
            slurm_siblings.names(own)
        return
    assert slurm_siblings.names(own) == expected
    if "never" in expected:
        with pytest.raises(Unreachable, match="never is not running"):
            slurm_siblings.connect(own, "never")
        found = slurm_siblings.connect(own, "b")
        assert found is not None
        assert found.cluster == "b"
    assert slurm_siblings.connect(own, "nosuch") is None
