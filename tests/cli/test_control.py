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


@pytest.mark.slurm
def test_a_job_of_mine_that_is_no_run(gpt_tune: Run, slurm: SlurmCluster) -> None:
    job = slurm.run("sbatch", "--parsable", "--begin=now+1hour", "-o", "/dev/null", "--wrap", "true")
    for command, reason in (("hold", "JobHeldUser"), ("release", "BeginTime")):
        done = gpt_tune(command, job, "--json")
        assert done.code == 0, done.err
        (after,) = done.json[command]
        assert (after["run_id"], after["job_id"], after["state"]) == (None, job, "PENDING")
        assert after["reason"] in (reason, "None", "")  # released, Slurm looks again a moment later
    assert gpt_tune("signal", job, "--json").code == 3  # it waits: nothing takes a signal
    assert gpt_tune("signal", job, "USR9", "--json").code == 2
    assert gpt_tune("hold", f"{job}99", "--json").code == 2
    assert gpt_tune("cancel", job, "--yes").code == 0
    assert gpt_tune("cancel", job, "--yes").code == 2  # gone: no job of mine by now
    assert Ledger.open().runs() == []


@pytest.mark.parametrize("name", ["hold", "release", "requeue", "signal"])
def test_an_unknown_id(gpt_tune: Run, name: str) -> None:
    done = gpt_tune(name, "nosuch", "--json")
    assert done.code == 2
    assert "no run or job" in done.error["message"]
