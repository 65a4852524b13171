"""Owns the figures of a run over all its jobs: progress, time left, GPU-hours, goodput, work at risk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_tune import clusters
from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.jobs import chains, clock
from gpt_tune.jsonable import as_json
from gpt_tune.ledger import JobRecord, Ledger, RunRecord
from gpt_tune.logs.parse import parse_files
from gpt_tune.schedulers import slurm_words
from gpt_tune.schedulers.base import Files
from gpt_tune.words import seconds_words
from gpt_tune.workflows import chain as chains_of_jobs
from gpt_tune.workflows.records import shape_of, training_gpus_of
from gpt_tune.workflows.remote_logs import logs_here


@dataclass(frozen=True, slots=True)
class ChainSummary:
    """Unknown figures are None. Times in seconds.

    goodput: the share of the GPUs' time that went into steps which still count; the rest was start-up, steps
    done again after a restart, and saving. at_risk: what would be lost if the job ended now.
    """

    jobs: int
    iteration: int | None = None
    total_iterations: int | None = None
    step_seconds: float | None = None
    running_seconds: float = 0.0
    gpu_hours: float | None = None
    goodput: float | None = None
    eta_seconds: float | None = None
    checkpoint: int | None = None
    at_risk_iterations: int | None = None
    at_risk_gpu_hours: float | None = None

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = as_json(self)
        return data


@dataclass(frozen=True, slots=True)
class Progress:
    """What the logs of all jobs say: iterations that count (each once), the last one, seconds a step."""

    distinct: int
    last: int | None
    total: int | None
    step_seconds: float | None


def of_run(run_id: str) -> tuple[chains.Chain, ChainSummary] | None:
    """A chain as it stands, and its figures; None for a run of one job, or while its cluster is away."""
    with Ledger.open() as ledger:
        record = ledger.get(run_id)
        chain = chains.chain_of(record)
        if chain is None:
            return None
        try:
            return chain, summary(record, ledger, clusters.connect(record.cluster).files)
        except SchedulerError:
            return None


def summary(record: RunRecord, ledger: Ledger, files: Files) -> ChainSummary:
    """The figures of a run, one job or many."""
    return figures(
        ledger.jobs(record.run_id),
        record.gpus,
        progress(record),
        chains_of_jobs.newest_checkpoint(files, chains_of_jobs.folder_of(record)),
        slurm_words.epoch(clock.now()),
    )


def progress(record: RunRecord) -> Progress:
    """Read the logs of all jobs of a run."""
    there = [path for path in logs_here(record) if Path(path).is_file()]
    try:
        result = parse_files(there, shape_of(record), training_gpus_of(record))
    except UserError:
        return Progress(0, None, None, None)
    steps = list(result.steps())
    total = next((s.total_iterations for s in reversed(steps) if s.total_iterations), None)
    median = result.summary.median_step_time_ms
    iterations = {s.iteration for s in steps}
    return Progress(
        len(iterations), max(iterations, default=None), total, None if median is None else median / 1000
    )


def figures(
    jobs: Sequence[JobRecord], gpus: int, done: Progress, checkpoint: int | None, now: float
) -> ChainSummary:
    """The figures from what is known; now in seconds since the epoch."""
    running = sum(_seconds(job, now) for job in jobs)
    goodput = eta = None
    if done.step_seconds and running > 0:
        goodput = min(1.0, done.distinct * done.step_seconds / running)
    if done.step_seconds and done.total and done.last is not None:
        pace = goodput if goodput and len(jobs) > 1 else 1.0
        eta = max(0, done.total - done.last) * done.step_seconds / pace
    risk = None if done.last is None else max(0, done.last - (checkpoint or 0))
    return ChainSummary(
        jobs=len(jobs),
        iteration=done.last,
        total_iterations=done.total,
        step_seconds=done.step_seconds,
        running_seconds=running,
        gpu_hours=running * gpus / 3600 if gpus else None,
        goodput=goodput,
        eta_seconds=eta,
        checkpoint=checkpoint,
        at_risk_iterations=risk,
        at_risk_gpu_hours=risk * done.step_seconds * gpus / 3600
        if risk is not None and done.step_seconds and gpus
        else None,
    )


def lines(chain: chains.Chain, figures_: ChainSummary) -> list[str]:
    """The figures for people."""
    found = [f"chain        {chains.words(chain)}"]
    if figures_.goodput is not None:
        hours = f", {figures_.gpu_hours:,.2f} GPU-hours" if figures_.gpu_hours else ""
        found.append(
            f"goodput      {figures_.goodput:.0%} of {seconds_words(figures_.running_seconds)}{hours}"
        )
    if figures_.checkpoint is not None:
        risk = ""
        if figures_.at_risk_iterations:
            cost = f", {figures_.at_risk_gpu_hours:,.2f} GPU-hours" if figures_.at_risk_gpu_hours else ""
            risk = f"; {figures_.at_risk_iterations} iterations since then are at risk{cost}"
        found.append(f"checkpoint   iteration {figures_.checkpoint}{risk}")
    return found


def _seconds(job: JobRecord, now: float) -> float:
    if job.started_at is None:
        return 0.0
    end = slurm_words.epoch(job.ended_at) if job.ended_at else now
    return max(0.0, end - slurm_words.epoch(job.started_at))
