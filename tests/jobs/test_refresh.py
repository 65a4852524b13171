"""States stay true: one call for all, ends found after Slurm forgot them, and no false end in an outage."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.errors import SchedulerError
from gpt_tune.jobs import reconciling, refreshing
from gpt_tune.ledger import JobRecord, Ledger, RunRecord
from gpt_tune.schedulers import slurm_words
from gpt_tune.schedulers.base import JobStatus, Scheduler
from gpt_tune.schedulers.local import Local
from gpt_tune.schedulers.slurm_cli import SlurmCli
from tests.cluster import SlurmCluster
from tests.jobs.helpers import prepared, refreshed_until, rendered


@pytest.fixture
def ledger(home: Path) -> Ledger:
    return Ledger.open()


def submitted(
    scheduler: Scheduler, ledger: Ledger, tmp_path: Path, body: str = "true", *options: str
) -> RunRecord:
    spec = prepared(scheduler, tmp_path / "runs")
    return jobs.submit(spec, rendered(spec, body, *options), scheduler, ledger)


@pytest.mark.slurm
def test_pending_running_cancelled(slurm: SlurmCluster, ledger: Ledger, tmp_path: Path) -> None:
    scheduler = clusters.connect()
    record = submitted(scheduler, ledger, tmp_path, "sleep 600", "--hold")
    held = refreshed_until(ledger, record.run_id, lambda r: r.reason == "JobHeldUser")
    assert (held.state, held.started_at) == ("PENDING", None)
    assert "you hold it; it will not start by itself" in jobs.reason_text(held)
    slurm.run("scontrol", "release", str(record.job_id))
    running = refreshed_until(ledger, record.run_id, lambda r: r.state == "RUNNING")
    assert (running.reason, running.node_list) == ("", "b200-1")
    cancelled = jobs.cancel(str(record.job_id), ledger)
    assert cancelled.cancel_requested
    done = refreshed_until(ledger, record.run_id, lambda r: not r.active)
    assert (done.state, jobs.reason_text(done)) == ("CANCELLED", "you cancelled it")
    assert slurm.run("squeue", "-h") == ""
    assert jobs.cancel(record.run_id, ledger) == done  # again: nothing to do


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("option", "reason", "words"),
    [
        (
            "--time=3:00:00",
            "PartitionTimeLimit",
            "longer than the partition allows; it will not start by itself",
        ),
        ("--nodes=12", "PartitionNodeLimit", "more nodes"),
        ("--begin=now+1hour", "BeginTime", "waits for its start time"),
        ("--dependency=afterok:1", "Dependency", "waits for another job"),
        ("--cpus-per-task=4000", "PartitionConfig", "no node of the partition has as much"),
    ],
)
def test_why_it_waits(
    slurm: SlurmCluster, ledger: Ledger, tmp_path: Path, option: str, reason: str, words: str
) -> None:
    if "dependency" in option:
        first = slurm.run("sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap", "true")
        option = option.replace(":1", f":{first}")
    try:
        record = submitted(clusters.connect(), ledger, tmp_path, "true", option)
    except SchedulerError as error:
        if reason in ("PartitionNodeLimit", "PartitionConfig") and "gpt-tune clusters" in error.hint:
            return  # newer versions take no job that can never start
        raise
    waiting = refreshed_until(ledger, record.run_id, lambda r: r.reason.startswith(reason))
    assert waiting.state == "PENDING"
    assert words in jobs.reason_text(waiting)


@pytest.mark.slurm
def test_many_runs_cost_one_call(slurm: SlurmCluster, ledger: Ledger, tmp_path: Path) -> None:
    scheduler = clusters.connect()
    for _ in range(5):
        submitted(scheduler, ledger, tmp_path, "true", "--hold")
    before = scheduler.calls
    assert len(jobs.refresh(ledger, scheduler)) == 5
    assert scheduler.calls - before == 1
    assert jobs.refresh(ledger, scheduler, max_age_seconds=60)[0].state == "PENDING"
    assert scheduler.calls - before == 1  # another gpt-tune asked a moment ago


def test_nothing_open_costs_no_call(home: Path, ledger: Ledger) -> None:
    """No run, so not even the cluster's name is looked up."""
    scheduler = SlurmCli()
    assert jobs.refresh(ledger) == []
    assert scheduler.calls == 0


@pytest.mark.slurm
def test_a_controller_that_goes_and_comes(slurm: SlurmCluster, ledger: Ledger, tmp_path: Path) -> None:
    scheduler = clusters.connect()
    record = submitted(scheduler, ledger, tmp_path, "sleep 600")
    refreshed_until(ledger, record.run_id, lambda r: r.state == "RUNNING")
    assert jobs.jobs_json(ledger)["stale_seconds"] == 0.0
    with slurm.controller_down():
        for failures in (1, 2, 3):
            (seen,) = jobs.refresh(ledger)
            assert (seen.state, seen.phase) == ("RUNNING", "submitted")
            assert ledger.poll("testbed").failures == failures
        assert "does not answer" in ledger.poll("testbed").error
        poll = ledger.poll("testbed")
        ledger.put_poll(replace(poll, answered_at="2026-01-01T00:00:00Z"))
        shown = jobs.jobs_json(ledger)
        assert shown["stale_seconds"] > 86400
        assert shown["as_of"] == "2026-01-01T00:00:00Z"
        with pytest.raises(SchedulerError, match="does not answer"):
            jobs.cancel(record.run_id, ledger)
        assert not ledger.get(record.run_id).cancel_requested
    (seen,) = jobs.refresh(ledger)
    assert seen.state == "RUNNING"
    poll = ledger.poll("testbed")
    assert (poll.failures, poll.error) == (0, "")
    assert poll.answered_at is not None
    assert poll.answered_at >= str(poll.asked_at)
    assert jobs.jobs_json(ledger)["stale_seconds"] == 0.0


class Forgetful(Local):
    """A scheduler that has forgotten every job, with or without accounting."""

    def __init__(self, remembered: dict[str, JobStatus] | None = None, broken: bool = False) -> None:
        super().__init__()
        self.remembered, self.broken = remembered or {}, broken

    def statuses(self, job_ids: object) -> dict[str, JobStatus]:
        return {}

    def history(self, job_ids: object, since: str) -> dict[str, JobStatus]:
        if self.broken:
            raise SchedulerError("sacct failed.")
        return self.remembered


@pytest.mark.parametrize(
    ("left", "cancelled", "state", "code"),
    [
        ("0\n", False, "COMPLETED", 0),
        ("3\n", False, "FAILED", 3),
        ("143\n", True, "CANCELLED", None),
        (None, True, "CANCELLED", None),
        (None, False, "UNKNOWN", None),
        ("", False, "UNKNOWN", None),
        ("half a numb", False, "UNKNOWN", None),
    ],
)
@pytest.mark.parametrize("broken", [False, True])
def test_a_forgotten_job_is_settled_by_what_it_left(
    ledger: Ledger,
    tmp_path: Path,
    left: str | None,
    cancelled: bool,
    state: str,
    code: int | None,
    broken: bool,
) -> None:
    record = submitted(Local(), ledger, tmp_path)
    refreshed_until(ledger, record.run_id, lambda r: not r.active)
    exit_file = Path(record.run_dir, "exit_code")
    exit_file.unlink()
    if left is not None:
        exit_file.write_text(left)
    ledger.update(record.run_id, phase="submitted", state="RUNNING", cancel_requested=cancelled)
    (done,) = jobs.refresh(ledger, Forgetful(broken=broken))
    if broken and state == "UNKNOWN":  # accounting may know it later
        assert (done.state, done.phase, done.active) == ("UNKNOWN", "submitted", True)
        assert "asked again" in jobs.reason_text(done)
        ledger.update(record.run_id, missing_since="2026-01-01T00:00:00Z")
        (done,) = jobs.refresh(ledger, Forgetful(broken=broken))
    assert (done.state, done.exit_code, done.phase) == (state, code, "ended")
    assert done.ended_at is not None
    if state == "UNKNOWN":
        assert "forgotten" in jobs.reason_text(done)
    assert jobs.refresh(ledger, Forgetful()) == []


def test_accounting_knows_better_than_the_run_folder(ledger: Ledger, tmp_path: Path) -> None:
    record = submitted(Local(), ledger, tmp_path, "sleep 600")
    jobs.cancel(record.run_id, ledger)
    refreshed_until(ledger, record.run_id, lambda r: not r.active)
    ledger.update(record.run_id, phase="submitted", state="RUNNING")
    assert record.job_id is not None
    told = JobStatus(record.job_id, "trial", "TIMEOUT", "TimeLimit", ended_at="2026-11-30T08:00:00Z")
    (done,) = jobs.refresh(ledger, Forgetful({record.job_id: told}))
    assert (done.state, done.reason, done.ended_at) == ("TIMEOUT", "TimeLimit", "2026-11-30T08:00:00Z")


def test_accounting_that_comes_back_says_how_it_ended(ledger: Ledger, tmp_path: Path) -> None:
    record = submitted(Local(), ledger, tmp_path)
    refreshed_until(ledger, record.run_id, lambda r: not r.active)
    Path(record.run_dir, "exit_code").unlink()
    ledger.update(record.run_id, phase="submitted", state="RUNNING")
    assert jobs.refresh(ledger, Forgetful(broken=True))[0].active
    told = JobStatus(str(record.job_id), "trial", "NODE_FAIL", ended_at="2026-11-30T08:00:00Z")
    (done,) = jobs.refresh(ledger, Forgetful({str(record.job_id): told}))
    assert (done.state, done.phase, done.reason, done.missing_since) == ("NODE_FAIL", "ended", "", None)


@pytest.mark.parametrize(
    ("comment", "work_dir", "own"),
    [
        ("gpt-tune-12", "/elsewhere", True), ("mine gpt-tune-12", "", True), ("", "/runs/r1", True),
        ("", "/runs", True),
        ("rewritten by the site", "/runs/r1", True), ("", "", True), ("gpt-tune-1", "/runs", True),
        ("gpt-tune-99", "", False), ("gpt-tune-99", "/runs/r2", False), ("", "/runs/r1x", False),
        ("", "/home/ann", False),
    ],
)  # fmt: skip
def test_a_job_id_that_was_given_twice(comment: str, work_dir: str, own: bool) -> None:
    """A controller that lost its state begins to count anew: another job may have a run's number."""
    record = RunRecord(
        "r1", "gpt-tune-12", "c", "slurm", "n", "smoke", "/runs/r1", "/r/j", "2026-11-30T07:15:33Z"
    )
    status = JobStatus("4", "n", "RUNNING", comment=comment, work_dir=work_dir)
    assert reconciling.is_job_of(record, status) is own


@pytest.mark.parametrize(("age_days", "asked"), [(0, 1), (3, 0)])
def test_accounting_is_not_asked_for_ever_about_a_lost_run(
    ledger: Ledger, tmp_path: Path, age_days: int, asked: int
) -> None:
    class Counting(Forgetful):
        histories = 0

        def history(self, job_ids: object, since: str) -> dict[str, JobStatus]:
            self.histories += 1
            return {}

        def my_jobs(self) -> list[JobStatus]:
            return []

    created = slurm_words.rfc3339(time.time() - age_days * 86400)
    ledger.add(
        RunRecord("r1", "gpt-tune-12", "local", "local", "n", "smoke", str(tmp_path), "/j", created, phase="lost",
                  submitter_host=socket.gethostname(), submitter_start="1")
    )  # fmt: skip
    scheduler = Counting()
    jobs.refresh(ledger, scheduler)
    assert scheduler.histories == asked
    assert ledger.get("r1").phase == "lost"


@pytest.mark.slurm
def test_somebody_elses_job_with_the_runs_number(slurm: SlurmCluster, ledger: Ledger, tmp_path: Path) -> None:
    other = slurm.run("sbatch", "--parsable", "--hold", "-D", "/", "-o", "/dev/null", "--wrap", "true")
    ledger.add(
        RunRecord("r1", "gpt-tune-12", "testbed", "slurm", "n", "smoke", str(tmp_path), "/j", "2026-11-30T07:15:33Z",
                  phase="submitted", state="RUNNING")
    )  # fmt: skip
    ledger.put_job(JobRecord("r1", other, 0, "RUNNING"))
    (seen,) = jobs.refresh(ledger)
    assert (seen.state, seen.reason) == ("UNKNOWN", refreshing.FORGOTTEN)


def test_a_run_of_a_cluster_that_is_not_known_here_keeps_its_state(ledger: Ledger, tmp_path: Path) -> None:
    record = submitted(Local(), ledger, tmp_path)
    refreshed_until(ledger, record.run_id, lambda r: not r.active)
    ledger.update(record.run_id, phase="submitted", state="RUNNING", cluster="elsewhere")
    (seen,) = jobs.refresh(ledger)
    assert seen.state == "RUNNING"
    assert "elsewhere" in ledger.poll("elsewhere").error


def test_local_and_slurm_runs_side_by_side(slurm: SlurmCluster, ledger: Ledger, tmp_path: Path) -> None:
    ids = [submitted(s, ledger, tmp_path, "exit 4").run_id for s in (clusters.connect(), Local())]
    for run_id in ids:
        done = refreshed_until(ledger, run_id, lambda r: not r.active)
        assert (done.state, done.exit_code) == ("FAILED", 4)
    assert {r.cluster for r in ledger.runs()} == {"testbed", "local"}


def test_the_json_has_every_key_of_the_contract(ledger: Ledger, tmp_path: Path) -> None:
    record = submitted(Local(), ledger, tmp_path, "exit 4")
    answer = jobs.submit_json(record)
    assert list(answer)[:10] == [
        "schema", "run_id", "cluster", "scheduler", "job_id", "job_ids", "state", "run_dir", "log_paths", "script",
    ]  # fmt: skip
    refreshed_until(ledger, record.run_id, lambda r: not r.active)
    shown = jobs.jobs_json(ledger)
    assert list(shown) == ["schema", "as_of", "stale_seconds", "jobs"]
    (entry,) = shown["jobs"]
    assert {
        "run_id", "job_id", "cluster", "name", "state", "reason", "reason_text", "nodes", "gpus", "submitted_at",
        "started_at", "ended_at", "exit_code", "log_paths", "last_iteration",
    } <= set(entry)  # fmt: skip
    assert (entry["state"], entry["exit_code"], entry["last_iteration"]) == ("FAILED", 4, None)
    assert shown["stale_seconds"] == 0.0


def test_reasons_of_an_end_are_words() -> None:
    plain = RunRecord("r1", "t", "c", "slurm", "n", "smoke", "/r", "/r/j", "2026-11-30T07:15:33Z")
    assert "forgotten" in jobs.reason_text(replace(plain, reason=refreshing.FORGOTTEN))
    assert jobs.reason_text(replace(plain, state="RUNNING")) == ""
    cancelled = replace(plain, state="CANCELLED", reason="CANCELLED by 0")
    assert jobs.reason_text(cancelled) == "it was cancelled by root"
    assert (
        jobs.reason_text(replace(cancelled, reason="CANCELLED by 4000000"))
        == "it was cancelled by user 4000000"
    )
    assert "exit code 7" in jobs.reason_text(
        replace(plain, state="FAILED", reason="NonZeroExitCode", exit_code=7)
    )
