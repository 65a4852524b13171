"""Owns finding out what became of a submission whose answer got lost. It never submits."""

from __future__ import annotations

import json
import posixpath
import socket
from collections.abc import Sequence

from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.jobs import clock, states
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.schedulers import local_runner, slurm_words
from gpt_tune.schedulers.base import JobStatus, Scheduler

LOST_REASON = "unknown: do not resubmit"
NEVER_SUBMITTED = "NotSubmitted"
# A controller that was frozen may still take a request whose sender is gone; only after this long without
# the job does its absence count. sbatch itself gives up after 60 s.
_SETTLE_SECONDS = 15.0
_LOST_SECONDS = 86400.0


def since(created_at: str) -> str:
    """From when on accounting is asked about a run: clocks of two machines may differ."""
    return slurm_words.rfc3339(slurm_words.epoch(created_at) - 3600)


def look_for(record: RunRecord, scheduler: Scheduler, ledger: Ledger) -> RunRecord:
    """Try once to find the job of a run without one, at once and without judging its absence."""
    try:
        job_id = from_run_folder(record, scheduler) or from_jobs(record, scheduler.my_jobs())
    except (SchedulerError, UserError):
        job_id = None
    if job_id is not None:
        return states.accepted(record, job_id, scheduler, ledger)
    return ledger.update(record.run_id, reason=LOST_REASON)


def reconcile(
    record: RunRecord, scheduler: Scheduler, ledger: Ledger, jobs: Sequence[JobStatus]
) -> RunRecord:
    """Settle a run without a job, given all of the user's jobs as the scheduler just listed them.

    Looks in the run folder, the queue and accounting, in that order.
    """
    if under_way(record, scheduler):
        return record
    job_id = from_run_folder(record, scheduler) or from_jobs(record, jobs)
    if job_id is None and _may_be_in_accounting(record):
        try:
            job_id = from_jobs(record, list(scheduler.history([], since(record.created_at)).values()))
        except SchedulerError:  # accounting is out, and may know the job: its absence proves nothing yet
            return record
    if job_id is not None:
        return states.accepted(record, job_id, scheduler, ledger)
    return _absent(record, scheduler, ledger)


def _may_be_in_accounting(record: RunRecord) -> bool:
    """Whether it is worth asking: a run that accounting did not know for a day it will not know later."""
    return record.phase != "lost" or (clock.age_seconds(record.created_at) or 0.0) < _LOST_SECONDS


def _absent(record: RunRecord, scheduler: Scheduler, ledger: Ledger) -> RunRecord:
    """What a job's absence everywhere means: nothing yet, never submitted, or not to be known."""
    if record.phase == "lost":
        return record
    missing = clock.age_seconds(record.missing_since)
    if missing is None:
        return ledger.update(record.run_id, missing_since=clock.now(), reason=LOST_REASON)
    if missing < _SETTLE_SECONDS:
        return record
    restarted = scheduler.running_since()
    if restarted is not None and slurm_words.epoch(restarted) >= slurm_words.epoch(record.created_at):
        # The controller was out meanwhile: it may have taken the job and forgotten it.
        return ledger.update(record.run_id, phase="lost", state="UNKNOWN", reason=LOST_REASON)
    return ledger.update(
        record.run_id, phase="ended", state="FAILED", reason=NEVER_SUBMITTED, ended_at=clock.now()
    )


def under_way(record: RunRecord, scheduler: Scheduler) -> bool:
    """Whether somebody is still submitting it right now."""
    if record.submitter_host == socket.gethostname():
        alive = local_runner.process_start(record.submitter_pid) == record.submitter_start
        # An intent whose submitter lives is in its hands, until the submitter itself lost the answer.
        if alive and record.reason != LOST_REASON:
            return True
        return scheduler.still_submitting(record.run_dir)
    age = clock.age_seconds(record.created_at) or 0.0
    return age < 120.0  # another machine: longer than any submission takes


def from_run_folder(record: RunRecord, scheduler: Scheduler) -> str | None:
    """The job id that the job itself wrote down when it started."""
    path = f"{record.run_dir}/started"
    if not scheduler.files.size(path):
        return None
    for line in reversed(scheduler.files.read(path).decode("utf-8", "replace").splitlines()):
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict) and data.get("token") == record.token and data.get("job_id"):
            return str(data["job_id"])
    return None


def from_jobs(record: RunRecord, jobs: Sequence[JobStatus]) -> str | None:
    """The job with the run's token in its comment, or working in its run folder (some sites rewrite comments)."""
    for job in jobs:
        if record.token in job.comment or (job.work_dir and job.work_dir == record.run_dir):
            return job.job_id
    return None


def is_job_of(record: RunRecord, status: JobStatus) -> bool:
    """Whether a job with the run's job id is the run's job: a controller that lost its state gives ids again."""
    words = status.comment.split()
    if any(record.token.startswith(word) for word in words if word.startswith("gpt-tune-")):
        return True  # a task of an array has its number behind the token
    if not status.work_dir:
        return record.token in words or not any(word.startswith("gpt-tune-") for word in words)
    return record.token in words or status.work_dir in (record.run_dir, posixpath.dirname(record.run_dir))
