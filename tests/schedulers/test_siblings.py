"""Two clusters of one accounting database: the other one is found, looked at, submitted to and followed by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger
from gpt_tune.schedulers import slurm_siblings
from gpt_tune.schedulers.base import Unreachable
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
    with second.controller_down(), pytest.raises(Unreachable):
        clusters.connect("second").discover()


def test_without_accounting_there_are_none(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_siblings, "_known", {})
    assert slurm_siblings.names(SlurmCli()) == ()
    with pytest.raises(UserError, match="Unknown cluster 'second'"):
        clusters.connect("second")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Completed(0, b"a|127.0.0.1\nb|10.0.0.1\nnever|\n", ""), ("b",)),
        (Completed(0, b"", ""), ()), (Completed(0, b"no table at all\n", ""), ()),
        (Completed(1, b"", "sacctmgr: error: Connection refused"), ()),
    ],
)  # fmt: skip
def test_what_sacctmgr_says(
    answer: Completed, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_siblings, "_known", {})
    own = SlurmCli(Recorded({"sacctmgr": answer}))
    own._name = "a"
    assert slurm_siblings.names(own) == expected
