"""Owns writing down what a scheduler said about a run's job."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, replace

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


def store(record: RunRecord, status: JobStatus, ledger: Ledger, settled: bool = False) -> RunRecord:
    """One job's status, as the scheduler (or what stands in for it) tells it. Writes only what changed.

    settled: nothing more will be heard of the job, whatever its state is.
    """
    assert record.job_id is not None
    ended = settled or status.state in ENDED
    news = replace(
        record,
        phase="ended" if ended else "submitted",
        state=status.state,
        reason=status.reason,
        submitted_at=status.submitted_at or record.submitted_at,
        started_at=status.started_at or (record.started_at if ended else None),
        ended_at=status.ended_at or (record.ended_at or clock.now() if ended else None),
        expected_start=status.expected_start,
        exit_code=status.exit_code,
        node_list=status.node_list or record.node_list,
        partition=status.partition or record.partition,
        missing_since=None,
    )
    if news == record:
        return record
    changes = {
        f.name: getattr(news, f.name)
        for f in fields(news)
        if getattr(news, f.name) != getattr(record, f.name)
    }
    with ledger.batch():
        stored = ledger.update(record.run_id, if_open=True, seen_at=clock.now(), **changes)
        if stored.phase == news.phase:
            ledger.put_job(_job(stored))
    return stored


def _job(record: RunRecord) -> JobRecord:
    """The last job of a run, as the run now says."""
    return JobRecord(
        run_id=record.run_id,
        job_id=record.job_ids[-1],
        ordinal=len(record.job_ids) - 1,
        state=record.state,
        reason=record.reason,
        submitted_at=record.submitted_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        exit_code=record.exit_code,
        node_list=record.node_list,
    )
