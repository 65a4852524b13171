"""Owns acting on a job of mine that is no run: hold, release, requeue, cancel or signal it by its scheduler's id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpt_tune import clusters, jobs
from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger
from gpt_tune.schedulers.base import ENDED, JobStatus, Scheduler
from gpt_tune.schedulers.slurm_jobs import stands_for


@dataclass(frozen=True, slots=True)
class OutsideJob:
    """A job of mine that gpt-tune did not submit and that nobody adopted. It has not ended."""

    job_id: str
    scheduler: Scheduler
    status: JobStatus

    def act(self, do: Callable[[Scheduler, str], None]) -> OutsideJob:
        """Do it, and look once: the job as it is then, or as it was when the scheduler forgot it at once."""
        do(self.scheduler, self.job_id)
        after = self.scheduler.statuses([self.job_id]).get(self.job_id, self.status)
        return OutsideJob(self.job_id, self.scheduler, after)

    def to_json(self) -> dict[str, Any]:
        """The keys of a run that a job without one has."""
        status = self.status
        return {
            "run_id": None, "job_id": self.job_id, "cluster": self.scheduler.cluster, "name": status.name,
            "state": status.state, "reason": status.reason, "nodes": status.nodes, "gpus": status.gpus,
        }  # fmt: skip


def find(text: str, ledger: Ledger | None = None) -> OutsideJob | None:
    """A job in my queue by its id (an array or a heterogeneous job by its own, or one task or part of it), None when it
    is a run or no job of mine.

    UserError when it has ended, and when several clusters have such a job: acting on the wrong one cannot be undone.
    """
    if not (text.isascii() and text[:1].isdigit()) or _is_run(text, ledger):
        return None
    found: list[OutsideJob] = []
    ended: list[JobStatus] = []
    for name in clusters.available():
        if name == clusters.LOCAL:
            continue
        scheduler = clusters.connect(name)
        mine = [s for s in scheduler.my_jobs() if stands_for(s.job_id, text)]
        fitting = [s for s in mine if s.state not in ENDED]
        found += [OutsideJob(text, scheduler, s) for s in fitting[:1]]
        ended += [s for s in mine if s.state in ENDED]
    if len(found) > 1:
        where = " and ".join(job.scheduler.cluster for job in found)
        raise UserError(
            f"Job {text} is on {where}.",
            "The Queue of the wizard (gpt-tune) shows each cluster by itself.",
        )
    if ended and not found:
        raise UserError(
            f"Job {text} has ended ({ended[0].state}).", f"Keep it as a run: gpt-tune jobs --adopt {text}"
        )
    return found[0] if found else None


def _is_run(text: str, ledger: Ledger | None) -> bool:
    try:
        jobs.find(text, ledger)
    except UserError as error:
        return not error.message.startswith("There is no run")  # several runs: not for us to choose
    return True
