"""Owns writing down what a scheduler said about a run's job."""

from __future__ import annotations

from contextlib import suppress

from gpt_tune.errors import UserError
from gpt_tune.jobs import clock, logs
from gpt_tune.ledger import JobRecord, Ledger, RunRecord
from gpt_tune.schedulers.base import ENDED, JobStatus, Scheduler


def accepted(record: RunRecord, job_id: str, scheduler: Scheduler, ledger: Ledger) -> RunRecord:
    """The scheduler took the job."""
    submitted = record.submitted_at or clock.now()
    ledger.put_job(JobRecord(record.run_id, job_id, len(record.job_ids), "PENDING", submitted_at=submitted))
    record = ledger.update(
        record.run_id,
        phase="submitted",
        state="PENDING",
        reason="",
        submitted_at=submitted,
        seen_at=clock.now(),
        missing_since=None,
    )
    with suppress(UserError):  # the job makes its log itself; this only lets it be opened earlier
        logs.touch(record, scheduler.files)
    return record


def store(record: RunRecord, status: JobStatus, ledger: Ledger) -> RunRecord:
    """One job's status, as the scheduler (or what stands in for it) tells it."""
    assert record.job_id is not None
    ledger.put_job(
        JobRecord(
            run_id=record.run_id,
            job_id=record.job_id,
            ordinal=len(record.job_ids) - 1,
            state=status.state,
            reason=status.reason,
            submitted_at=status.submitted_at or record.submitted_at,
            started_at=status.started_at,
            ended_at=status.ended_at,
            exit_code=status.exit_code,
            node_list=status.node_list,
        )
    )
    ended = status.state in ENDED
    return ledger.update(
        record.run_id,
        if_open=True,
        phase="ended" if ended else "submitted",
        state=status.state,
        reason=status.reason,
        submitted_at=status.submitted_at or record.submitted_at,
        started_at=status.started_at or (record.started_at if ended else None),
        ended_at=status.ended_at or (clock.now() if ended else None),
        expected_start=status.expected_start,
        exit_code=status.exit_code,
        node_list=status.node_list or record.node_list,
        partition=status.partition or record.partition,
        seen_at=clock.now(),
        missing_since=None,
    )
