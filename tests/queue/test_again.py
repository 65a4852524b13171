"""A queue that stays on screen asks no more than is promised, and shows what is heard of runs at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.jobs import polling, reconciling
from gpt_tune.jobs.pacing import Budget, Pacer
from gpt_tune.ledger import Ledger
from gpt_tune.schedulers.base import JobStatus
from gpt_tune.workflows import queue, queue_again
from gpt_tune.workflows.asking import Asking
from gpt_tune.workflows.queue import MyJob, QueueView
from tests.cluster import SlurmCluster, wait_until
from tests.jobs.helpers import cluster, prepared, rendered
from tests.jobs.test_find import PLAIN
from tests.jobs.test_good_guest import SimulatedTime, requests, simulated

__all__ = ["simulated"]
MINUTES = 6


@pytest.mark.slurm
def test_the_rate_with_a_monitor_beside(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simulated: SimulatedTime
) -> None:
    monkeypatch.setattr(polling, "SETTLED_AFTER_SECONDS", float("inf"))
    ledger, there = Ledger.open(), clusters.connect()
    spec = prepared(there, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "sleep 600", "--hold"), there, ledger)
    other = slurm.run("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 600")
    slurm.wait_for_state(other, "RUNNING")
    budget = Budget(simulated)
    asking = Asking(record.run_id, Pacer(simulated, budget=budget))
    for _ in range(polling.QUICK_POLLS):
        asking()
        simulated.now += polling.QUICK_SECONDS
    view = queue.look(there, ledger)
    begun, counts, looks, free = simulated.now, [], 0, {view.as_of}
    for minute in range(MINUTES):
        slurm.run("sdiag", "--reset")
        for second in range(60):
            simulated.now = begun + minute * 60.0 + second
            asking()
            if second == 30:  # the screen's own clock
                now = queue_again.again(there, ledger, view, budget)
                view, looks = now or view, looks + (now is not None)
                free.add(view.free_at or view.as_of)
        counts.append(requests(slurm))
    assert max(counts) <= polling.REQUESTS_A_MINUTE, counts
    assert looks >= MINUTES - 1
    assert len(free) >= 2  # the nodes are looked at again, too
    assert {j.status.job_id for j in view.jobs} == {record.job_id, other}
    assert ledger.poll("testbed").failures == 0


@pytest.mark.slurm
def test_what_the_queue_hears_the_ledger_hears(slurm: SlurmCluster, tmp_path: Path) -> None:
    ledger, there = Ledger.open(), clusters.connect()
    spec = prepared(there, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "sleep 600", "--hold"), there, ledger)
    view = queue.look(there, ledger)
    assert [j.held for j in view.jobs] == [True]
    slurm.run("scontrol", "release", str(record.job_id))
    wait_until(lambda: slurm.job_state(str(record.job_id)) == "RUNNING", 20, "its start")
    now = queue_again.again(there, ledger, view, Budget())
    assert now is not None
    assert [j.status.state for j in now.jobs] == ["RUNNING"]
    assert ledger.get(record.run_id).state == "RUNNING"
    calls = there.calls
    jobs.refresh(ledger, there, max_age_seconds=polling.FAST_SECONDS)
    assert there.calls == calls  # that was a poll
    ledger.update(record.run_id, job_ids=("987654",))
    assert queue_again.again(there, ledger, now, Budget()) is not None
    jobs.refresh(ledger, there, max_age_seconds=0.0)
    assert reconciling.LOST_REASON not in ledger.get(record.run_id).reason


def test_no_more_than_is_left() -> None:
    now = [0.0]
    budget = Budget(lambda: now[0])
    budget.spend(polling.REQUESTS_A_MINUTE - 1)
    view = QueueView(cluster(), (), (), "2026-11-30T00:00:00Z")
    from gpt_tune.schedulers.slurm_cli import SlurmCli

    assert queue_again.again(SlurmCli(), None, view, budget) is None  # type: ignore[arg-type]


def test_runs_in_the_queue() -> None:
    mine = MyJob(JobStatus("7", "x", "PENDING", "JobHeldUser"), PLAIN.run_id, "you hold it", "no", "release")
    foreign = MyJob(JobStatus("8", "y", "PENDING", "Priority"), None)
    task = MyJob(JobStatus("9_2", "z", "PENDING", "Priority"), "array")
    view = QueueView(cluster(name=PLAIN.cluster), (mine, foreign, task), (), "2026-11-30T00:00:00Z")
    run = replace(PLAIN, job_ids=("7",), state="RUNNING", node_list="n1", phase="submitted")
    array = replace(PLAIN, run_id="array", job_ids=("9",), state="RUNNING")
    now = queue_again.with_runs(view, [run, array])
    assert [(j.status.state, j.why, j.starts, j.fix) for j in now.jobs] == [
        ("RUNNING", "", "", ""), ("PENDING", "", "", ""), ("PENDING", "", "", ""),
    ]  # fmt: skip
    waiting = queue_again.with_runs(now, [replace(run, state="PENDING", reason="Resources")])
    assert waiting.jobs[0].starts == "yes"
    ended = queue_again.with_runs(view, [replace(run, state="COMPLETED")])
    assert [j.status.job_id for j in ended.jobs] == ["8", "9_2"]
    assert queue_again.with_runs(view, [replace(run, cluster="another")]) == view
