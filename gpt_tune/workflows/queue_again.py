"""Owns a queue that stays on screen: looked at again within what may be asked of a controller in the background."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpt_tune.jobs import clock, reasons, refreshing
from gpt_tune.jobs.pacing import Budget
from gpt_tune.jobs.polling import POLL_REQUESTS
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.schedulers.base import ENDED, Scheduler
from gpt_tune.schedulers.slurm_cli import SlurmCli
from gpt_tune.workflows import queue
from gpt_tune.workflows.queue import MyJob, QueueView

_FREE_SECONDS = 110.0  # between two looks at the nodes; jobs are asked about each minute


def again(scheduler: Scheduler, ledger: Ledger, before: QueueView, budget: Budget) -> QueueView | None:
    """The queue as it is now; None when the minute's requests are spent. What it hears of runs the ledger hears, too,
    so that no poll asks for it again."""
    if not isinstance(scheduler, SlurmCli):
        return queue.look(scheduler, ledger)
    if not budget.allows(POLL_REQUESTS):
        return None
    budget.spend(POLL_REQUESTS)
    listed = scheduler.my_jobs()
    refreshing.heard(listed, scheduler, ledger)
    cluster, free_at = before.cluster, before.free_at or before.as_of
    if (clock.age_seconds(free_at) or 0.0) >= _FREE_SECONDS and budget.allows(POLL_REQUESTS):
        budget.spend(POLL_REQUESTS)  # sinfo makes two as well
        cluster, free_at = replace(cluster, partitions=scheduler.partitions()), clock.now()
    return replace(queue.view_of(cluster, listed, scheduler.cluster, ledger), free_at=free_at)


def with_runs(view: QueueView, records: Sequence[RunRecord]) -> QueueView:
    """The queue with what was heard of runs since, without asking anybody."""
    known = {r.run_id: r for r in records if r.cluster == view.cluster.name}
    jobs = [_with_run(job, known.get(job.run_id or "")) for job in view.jobs]
    return replace(view, jobs=tuple(job for job in jobs if job.status.state not in ENDED))


def _with_run(job: MyJob, record: RunRecord | None) -> MyJob:
    if record is None or record.job_id != job.status.job_id or record.state == job.status.state:
        return job  # of an array the ledger knows the whole only
    status = replace(
        job.status, state=record.state, reason=record.reason, node_list=record.node_list,
        started_at=record.started_at, expected_start=record.expected_start,
    )  # fmt: skip
    if record.state != "PENDING":
        return replace(job, status=status, why="", starts="", fix="")
    reason = reasons.explain(record.reason)
    return replace(job, status=status, why=reason.text, starts=reason.starts, fix=reason.fix)
