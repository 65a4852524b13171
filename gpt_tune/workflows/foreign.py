"""Owns looking at a job of mine that gpt-tune did not submit: its state and its logs, from the scheduler."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import dataclass

from gpt_tune import clusters
from gpt_tune.errors import SchedulerError
from gpt_tune.jobs.pacing import Pacer
from gpt_tune.jobs.polling import ONE_JOB_REQUESTS
from gpt_tune.schedulers import hostlist, log_patterns
from gpt_tune.schedulers.base import JobStatus, Scheduler
from gpt_tune.workflows.told import on_this_machine


@dataclass(frozen=True, slots=True)
class ForeignJob:
    """A job that is not in the ledger. log_paths: absolute, patterns filled in as far as known."""

    cluster: str
    status: JobStatus
    log_paths: tuple[str, ...]
    state_source: Callable[[], JobStatus | None]


def find(job_id: str) -> ForeignJob | None:
    """A job by its id on any cluster that answers, or None."""
    if not job_id[:1].isdigit():
        return None
    for name in clusters.available():
        if name == clusters.LOCAL:
            continue
        scheduler = clusters.connect(name)
        status = scheduler.statuses([job_id]).get(job_id)
        if status is not None:
            logs = _log_paths(status)
            return ForeignJob(name, status, logs, _source(scheduler, job_id, logs))
    return None


def _source(
    scheduler: Scheduler, job_id: str, logs: tuple[str, ...], pacer: Pacer | None = None
) -> Callable[[], JobStatus | None]:
    """Asked as often as one likes, it asks Slurm at the engine's pace, and when a waiting job's log grows; None: the
    last good state stands."""
    pacer = pacer or Pacer()
    pacer.acted()
    last, size = "", _written(logs)

    def ask() -> JobStatus | None:
        nonlocal last, size
        begun = (
            last == "PENDING" and _written(logs) > size and pacer.budget.allows(ONE_JOB_REQUESTS, told=True)
        )
        if not (pacer.due or begun):
            return None
        size = _written(logs)
        before, status, failed = scheduler.calls, None, False
        try:
            status = scheduler.statuses([job_id]).get(job_id) if pacer.due else scheduler.one(job_id)
        except SchedulerError:
            failed = True
        state = status.state if status else last
        if pacer.due:
            pacer.polled([state], calls=scheduler.calls - before, changed=state != last, failed=failed)
        else:
            pacer.budget.spend(ONE_JOB_REQUESTS, told=True)
            pacer.count(scheduler.calls - before)
        last = state
        return status

    return ask


def _written(logs: tuple[str, ...]) -> int:
    """Bytes in the logs that can be seen from here."""
    return sum(mark[0] for path in logs if (mark := on_this_machine(path)) is not None)


def _log_paths(status: JobStatus) -> tuple[str, ...]:
    nodes = hostlist.expand(status.node_list)
    known = log_patterns.values(
        status.job_id, name=status.name, user=getpass.getuser(), host=nodes[0] if nodes else None
    )
    return tuple(log_patterns.expand(path, known) for path in status.log_paths)
