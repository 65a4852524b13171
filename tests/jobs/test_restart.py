"""A monitor goes on while slurmctld is restarted under it: no false end, and the truth within one poll."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.ledger import Ledger
from gpt_tune.schedulers.base import ENDED
from gpt_tune.workflows.asking import Asking
from gpt_tune.workflows.records import watch_of
from tests.cluster import SlurmCluster, wait_until
from tests.jobs.helpers import Impatient, prepared, refreshed_until, rendered


@pytest.mark.slurm
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_under_a_running_monitor(slurm: SlurmCluster, tmp_path: Path, number: signal.Signals) -> None:
    scheduler, ledger = clusters.connect(), Ledger.open()
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "sleep 600"), scheduler, ledger)
    refreshed_until(ledger, record.run_id, lambda r: r.state == "RUNNING")
    slurm.run("scontrol", "reconfigure")  # it saves its state, so that a killed one comes back with this job
    saved, token = slurm.folder / "state" / "job_state", record.token.encode()
    wait_until(lambda: saved.exists() and token in saved.read_bytes(), 20, "the controller's saved state")
    asking = Asking(record.run_id, Impatient(1000))
    watch = watch_of(record, asking)
    watch._state_seconds = 0.0  # ask at each look
    seen: list[str] = []

    def look() -> None:
        wait_until(lambda: asking.pacer.due, 10, "the time for a poll")
        seen.append(watch.poll().state)

    for _ in range(3):
        look()
    with slurm.controller_down(number):
        for failures in (1, 2, 3):
            look()
            assert ledger.poll("testbed").failures == failures
        assert asking.pacer.silent_seconds > 0
    look()  # the one poll it may take
    assert ledger.poll("testbed").failures == 0
    seen.append(watch.poll().state)
    assert not ENDED & set(seen)
    assert "UNKNOWN" not in seen
    assert not watch.poll().ended
    # A killed controller comes back with what it had saved, which may be from before the job's start.
    known = {"RUNNING"} if number == signal.SIGTERM else {"RUNNING", "PENDING"}
    assert set(seen) <= known
    assert seen[:6] == ["RUNNING"] * 6
