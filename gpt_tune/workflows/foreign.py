"""Owns looking at a job of mine that gpt-tune did not submit: its state and its logs, from the scheduler."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import dataclass

from gpt_tune import clusters
from gpt_tune.errors import SchedulerError
from gpt_tune.jobs.pacing import Pacer
from gpt_tune.schedulers import hostlist, log_patterns
from gpt_tune.schedulers.base import JobStatus, Scheduler


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
            return ForeignJob(name, status, _log_paths(status), _source(scheduler, job_id))
    return None


def _source(scheduler: Scheduler, job_id: str) -> Callable[[], JobStatus | None]:
    """Asked as often as one likes, it asks Slurm at the engine's pace; None: the last good state stands."""
    pacer = Pacer()
    pacer.acted()
    last = ""

    def ask() -> JobStatus | None:
        nonlocal last
        if not pacer.due:
            return None
        before, status, failed = scheduler.calls, None, False
        try:
            status = scheduler.statuses([job_id]).get(job_id)
        except SchedulerError:
            failed = True
        state = status.state if status else last
        pacer.polled([state], calls=scheduler.calls - before, changed=state != last, failed=failed)
        last = state
        return status

    return ask


def _log_paths(status: JobStatus) -> tuple[str, ...]:
    nodes = hostlist.expand(status.node_list)
    known = log_patterns.values(
        status.job_id, name=status.name, user=getpass.getuser(), host=nodes[0] if nodes else None
    )
    return tuple(log_patterns.expand(path, known) for path in status.log_paths)
