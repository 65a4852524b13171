"""Owns what hold, requeue and signal mean for whole jobs, tasks of arrays and parts of heterogeneous jobs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers import slurm_jobs
from gpt_tune.schedulers.base import ENDED, JobStatus, SignalTarget

BEFORE_SCANCEL_REPEATS = 4.0  # seconds; it sleeps for 5 before it sends a signal again


def waiting(job_id: str, parts: Sequence[JobStatus]) -> str:
    """What to hold: of an array that runs in part, the tasks that wait. SchedulerError when nothing does."""
    chosen = slurm_jobs.chosen(parts, job_id)
    found = [s for s in chosen if s.state == "PENDING"]
    if not found:
        raise _not_waiting(job_id, chosen)
    return (
        slurm_jobs.together(found) if "_" in found[0].job_id and len(found) < len(chosen) else named(job_id)
    )


def named(job_id: str) -> str:
    """As Slurm's commands take it: without the limit of tasks at once, which a line of the queue ends with."""
    return re.sub(r"%\d+(?=\]$)", "", job_id)


def check_whole(job_id: str) -> None:
    """SchedulerError for a part of a heterogeneous job."""
    if "+" in job_id:
        whole = slurm_jobs.base_of(job_id)
        raise SchedulerError(
            f"{job_id} is a part of the heterogeneous job {whole}, which is requeued as a whole.",
            f"gpt-tune requeue {whole}",
        )


def check_running(job_id: str, parts: Sequence[JobStatus]) -> None:
    """SchedulerError unless some of it takes signals."""
    chosen = slurm_jobs.chosen(parts, job_id)
    if not any(s.state in ("RUNNING", "SUSPENDED") for s in chosen):
        raise _not_running(job_id, chosen)


def _not_waiting(job_id: str, parts: Sequence[JobStatus]) -> SchedulerError:
    """The error for a job that cannot be held."""
    if not parts:
        return SchedulerError(f"Slurm does not know job {job_id} any more.", "It has ended.")
    return SchedulerError(
        f"Job {job_id} is {parts[0].state}: only a waiting job can be held.",
        "A running one can be put back (gpt-tune requeue) or ended (gpt-tune cancel).",
    )


def _not_running(job_id: str, parts: Sequence[JobStatus]) -> SchedulerError:
    """The error for a job that cannot be sent a signal."""
    if not parts:
        return SchedulerError(f"Slurm does not know job {job_id} any more.", "It has ended.")
    state = next((s.state for s in parts if s.state not in ENDED), parts[0].state)
    if state in ENDED:
        return SchedulerError(f"Job {job_id} has ended ({state}).", "`gpt-tune resubmit` starts it again.")
    hint = (
        "It ends by itself now." if state == "COMPLETING" else "`gpt-tune cancel` takes it out of the queue."
    )
    return SchedulerError(f"Job {job_id} is {state}: only a running job takes signals.", hint)


def scancel(job_id: str, name: str, target: SignalTarget, *more: str) -> list[str]:
    return ["scancel", *more, f"--signal={name}", "--full" if target == "all" else "--batch", job_id]
