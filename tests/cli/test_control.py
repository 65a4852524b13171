"""Tests of hold, release, requeue and signal as commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.ledger import Ledger
from tests.cli.conftest import Run
from tests.cluster import SlurmCluster
from tests.jobs.helpers import prepared, rendered


@pytest.mark.slurm
def test_hold_and_release(gpt_tune: Run, slurm: SlurmCluster, tmp_path: Path) -> None:
    scheduler = clusters.connect()
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "true", "--begin=now+1hour"), scheduler, Ledger.open())
    done = gpt_tune("hold", record.job_id, "--json")
    assert done.code == 0, done.err
    assert done.json["schema"] == "gpt-tune/hold/1"
    (held,) = done.json["hold"]
    assert (held["run_id"], held["state"], held["reason"]) == (record.run_id, "PENDING", "JobHeldUser")
    done = gpt_tune("release", record.run_id)
    assert done.code == 0
    assert record.run_id in done.out
    refused = gpt_tune("signal", record.run_id, "--json")  # it waits: nothing takes a signal
    assert refused.code == 3
    assert refused.error["hint"]
    wrong = gpt_tune("signal", record.run_id, "USR9", "--json")
    assert (wrong.code, "USR" in wrong.error["hint"]) == (2, True)


@pytest.mark.parametrize("name", ["hold", "release", "requeue", "signal"])
def test_an_unknown_id(gpt_tune: Run, name: str) -> None:
    done = gpt_tune(name, "nosuch", "--json")
    assert done.code == 2
    assert "no run or job" in done.error["message"]
