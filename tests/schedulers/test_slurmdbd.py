"""A live slurmdbd: ends that slurmctld has forgotten, lost submissions found again, limits that refuse and delay."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.errors import SchedulerError
from gpt_tune.jobs import clock, reconciling, refreshing
from gpt_tune.ledger import JobRecord, Ledger
from gpt_tune.schedulers import refusals
from gpt_tune.schedulers.base import ENDED, JobStatus, SubmitRequest
from gpt_tune.schedulers.slurm_cli import SlurmCli
from tests.cluster import SlurmCluster, wait_until
from tests.jobs.helpers import prepared, refreshed_until, rendered
from tests.jobs.test_find import PLAIN

# One worker starts the cluster with accounting for all of these.
pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("accounting")]
# A run whose gpt-tune died on this machine.
GONE = replace(PLAIN, submitter_host=socket.gethostname(), submitter_start="1")
SINCE = "2026-01-01T00:00:00Z"


class Forgetful(SlurmCli):
    """A slurmctld that has purged every job (MinJobAge after their end), as accounting has not."""

    def _squeue(self, job_ids: Sequence[str], by_task: bool = False) -> list[JobStatus]:
        return []


def submit(tmp_path: Path, *options: str, body: str = "true", token: str = "token-1") -> str:
    folder = tmp_path / f"job-{secrets.token_hex(3)}"
    folder.mkdir()
    lines = "".join(f"#SBATCH {o}\n" for o in ("--output=/dev/null", *options))
    (folder / "job.sh").write_text(f"#!/bin/bash\n{lines}{body}\n")
    return SlurmCli().submit(SubmitRequest(str(folder / "job.sh"), str(folder), "x", token))


def history_of(job_id: str, wanted: Callable[[JobStatus], bool] = lambda s: s.state in ENDED) -> JobStatus:
    scheduler = SlurmCli()

    def known() -> bool:
        status = scheduler.history([job_id], SINCE).get(job_id)
        return status is not None and wanted(status)

    wait_until(known, 40, f"job {job_id} in accounting")
    return scheduler.history([job_id], SINCE)[job_id]


def test_ends_in_accounting(cluster_with_accounting: SlurmCluster, tmp_path: Path) -> None:
    failed = submit(tmp_path, "-N2", "--gres=gpu:b200:4", body="exit 3")
    cancelled = submit(tmp_path, body="sleep 600")
    cluster_with_accounting.wait_for_state(cancelled, "RUNNING")
    SlurmCli().cancel(cancelled)
    array = submit(tmp_path, "--array=1-2", body="[ $SLURM_ARRAY_TASK_ID != 2 ]")
    status = history_of(failed)
    assert (status.state, status.exit_code, status.nodes, status.gpus) == ("FAILED", 3, 2, 8)
    assert None not in (status.submitted_at, status.started_at, status.ended_at)
    assert status.node_list.startswith("b200-")
    ended = history_of(cancelled)
    assert (ended.state, ended.exit_code, ended.reason.split(" by ")[0]) == ("CANCELLED", None, "CANCELLED")
    assert history_of(f"{array}_1").state == "COMPLETED"
    assert history_of(f"{array}_2").state == "FAILED"
    assert history_of(array).state == "FAILED"
    assert "987654" not in SlurmCli().history(["987654", failed], SINCE)


def test_a_run_whose_job_is_forgotten(cluster_with_accounting: SlurmCluster, tmp_path: Path) -> None:
    """Nothing in its run folder says how it ended: accounting does."""
    scheduler, ledger = clusters.connect(), Ledger.open()
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "sleep 600"), scheduler, ledger)
    refreshed_until(ledger, record.run_id, lambda r: r.state == "RUNNING")
    cluster_with_accounting.run("scancel", str(record.job_id))
    history_of(str(record.job_id))
    Path(spec.run_dir, "exit_code").unlink(missing_ok=True)
    (done,) = jobs.refresh(ledger, Forgetful())
    assert (done.state, done.phase, done.cancel_requested) == ("CANCELLED", "ended", False)
    assert jobs.reason_text(done).startswith("it was cancelled by ")


def test_a_lost_submission_is_found_in_accounting(
    cluster_with_accounting: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job came and went while nobody heard of it, and slurmctld has forgotten it: it is never submitted twice."""
    monkeypatch.setattr(reconciling, "_SETTLE_SECONDS", 0.0)
    token = f"gpt-tune-{secrets.token_hex(4)}"
    job_id = submit(tmp_path, body="exit 4", token=token)
    history_of(job_id)
    # sacct leaves out what is of this very second; gpt-tune itself waits longer before it judges.
    wait_until(lambda: job_id in SlurmCli().history([], SINCE), 20, "the job in the list of all")
    (folder,) = tmp_path.glob("job-*")
    ledger = Ledger.open()
    ledger.add(
        replace(
            GONE, run_id="r1", token=token, cluster="accounted", run_dir=str(folder), created_at=clock.now()
        )
    )
    (found,) = jobs.refresh(ledger, Forgetful())
    assert found.job_id == job_id
    (done,) = jobs.refresh(ledger, Forgetful())
    assert (done.state, done.exit_code) == ("FAILED", 4)
    ledger.add(
        replace(
            GONE, run_id="r2", token="never", cluster="accounted", run_dir="/nowhere", created_at=clock.now()
        )
    )
    for _ in range(2):
        jobs.refresh(ledger, Forgetful())
    assert ledger.get("r2").reason == reconciling.NEVER_SUBMITTED


def test_accounting_is_out_and_comes_back(cluster_with_accounting: SlurmCluster, tmp_path: Path) -> None:
    slurm = cluster_with_accounting
    ledger = Ledger.open()
    job_id = submit(tmp_path, body="exit 5")
    history_of(job_id)
    (folder,) = tmp_path.glob("job-*")
    ledger.add(
        replace(
            GONE,
            run_id="r1",
            token="t1",
            cluster="accounted",
            run_dir=str(folder),
            phase="submitted",
            state="RUNNING",
            created_at=clock.now(),
        )
    )
    ledger.put_job(JobRecord("r1", job_id, 0, "RUNNING"))
    with slurm.accounting_down():
        with pytest.raises(SchedulerError, match="accounting"):
            SlurmCli().history([job_id], SINCE)
        (seen,) = jobs.refresh(ledger, Forgetful())
        assert (seen.state, seen.reason, seen.active) == ("UNKNOWN", refreshing.ACCOUNTING_OUT, True)
        assert submit(tmp_path, "--hold")  # submitting goes on
        ledger.add(
            replace(GONE, run_id="r2", token="never", cluster="accounted", created_at="2026-11-30T07:15:33Z")
        )
        jobs.refresh(ledger, Forgetful())
        assert ledger.get("r2").phase == "intent"  # accounting may know it
    history_of(job_id)
    jobs.refresh(ledger, Forgetful())
    done = ledger.get("r1")
    assert (done.state, done.exit_code, done.phase) == ("FAILED", 5, "ended")


REFUSED = [
    ("F83", ["--qos=short", "--time=30"], "QOSMaxWallDurationPerJobLimit", "time_limit"),
    ("F83", ["--qos=tiny", "--nodes=2"], "QOSMaxNodePerJobLimit", "fewer nodes"),
    ("F84", ["--account=nosuch"], "Invalid account or account/partition combination", "site.account"),
    ("F84", ["--account=other"], "Invalid account or account/partition combination", "site.account"),
    ("F84", ["--qos=nosuch"], "Invalid qos specification", "site.qos"),
    ("F84", ["--qos=closed"], "Invalid qos specification", "site.qos"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "options", "words", "hint"), REFUSED, ids=lambda v: str(v)[:40])
def test_refused_by_accounts_and_limits(
    cluster_with_accounting: SlurmCluster, tmp_path: Path, row: str, options: list[str], words: str, hint: str
) -> None:
    with pytest.raises(SchedulerError) as caught:
        submit(tmp_path, *options)
    assert words in caught.value.message
    assert hint in caught.value.hint
    known = refusals.fix_for(caught.value.message)
    assert known is not None
    assert known.id == row


def test_too_many_jobs_at_once(cluster_with_accounting: SlurmCluster, tmp_path: Path) -> None:
    submit(tmp_path, "--qos=few", "--hold")
    with pytest.raises(SchedulerError, match="QOSMaxSubmitJobPerUserLimit") as caught:
        submit(tmp_path, "--qos=few", "--hold")
    assert "wait for one to end" in caught.value.hint


@pytest.mark.parametrize(
    ("qos", "reason", "starts"),
    [("slow", "QOSMaxNodePerUserLimit", "yes"), ("spent", "QOSGrpCPUMinutesLimit", "no")],
)
def test_why_a_limit_delays(
    cluster_with_accounting: SlurmCluster, tmp_path: Path, qos: str, reason: str, starts: str
) -> None:
    if qos == "slow":
        first = submit(tmp_path, f"--qos={qos}", "--time=10", body="sleep 600")
        cluster_with_accounting.wait_for_state(first, "RUNNING")
    job_id = submit(tmp_path, f"--qos={qos}", "--time=10", "--exclusive", body="sleep 600")
    wait_until(
        lambda: SlurmCli().statuses([job_id])[job_id].reason not in ("", "Priority", "Resources"),
        30,
        "a reason",
    )
    assert SlurmCli().statuses([job_id])[job_id].reason == reason
    assert jobs.explain(reason).starts == starts
