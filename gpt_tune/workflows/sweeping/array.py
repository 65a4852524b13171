"""Owns submitting many like tasks as one array job, each in a folder of its own."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from gpt_tune import rendering
from gpt_tune.errors import UserError
from gpt_tune.jobs import reconciling, states
from gpt_tune.jobs import submitting as single
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.recipes.base import RenderedFile
from gpt_tune.schedulers import sbatch_lines
from gpt_tune.schedulers.base import Scheduler, SubmitRequest, SubmitUnknown
from gpt_tune.workflows.launch import Launch

_PER_TASK = frozenset({"job-name", "comment", "output", "error", "chdir"})


def fits(launches: Sequence[Launch]) -> bool:
    """Whether one array can hold them: several, on Slurm, all with the same needs."""
    return (
        len(launches) > 1
        and launches[0].spec.scheduler == "slurm"
        and len({needs(launch) for launch in launches}) == 1
    )


def needs(launch: Launch) -> tuple[tuple[str, str], ...]:
    """What a task asks the scheduler for, without what is its own."""
    options = sbatch_lines.options(_script(launch).content)
    return tuple(sorted((k, v) for k, v in options.items() if k not in _PER_TASK))


def submit(
    launches: Sequence[Launch], folder: str, name: str, tags: Sequence[tuple[str, ...]], ledger: Ledger,
    at_once: int | None = None,
) -> list[RunRecord]:  # fmt: skip
    """One submission for all tasks; task N works in folder/task-N. Refused: everything is taken back.

    at_once: how many may run at the same time.
    """
    scheduler = launches[0].scheduler
    scheduler.check_reachable()
    token = f"gpt-tune-{secrets.token_hex(8)}"
    records = [
        replace(
            single.intent(launch.spec, launch.rendered, scheduler, more),
            token=f"{token}-{number}",
            log_paths=(f"{launch.spec.run_dir}/{rendering.LOG_FOLDER}/{name}-%A_%a.out",),
            name=name,
        )
        for number, (launch, more) in enumerate(zip(launches, tags), 1)
    ]
    script = f"{folder}/array.sbatch"
    with ledger.batch():
        for record in records:
            ledger.add(record)
    try:
        for launch, record in zip(launches, records):
            _write(launch, record, scheduler)
        content = _array_script(launches, folder, name, token, at_once)
        rendering.write(scheduler.files, folder, [RenderedFile("array.sbatch", content, executable=True)])
        job_id = scheduler.submit(SubmitRequest(script, folder, name, token))
    except SubmitUnknown:
        found = _find(token, scheduler)
        if found is None:
            for record in records:
                ledger.update(record.run_id, reason=reconciling.LOST_REASON)
            raise
        job_id = found
    except UserError:
        for launch, record in zip(launches, records):
            single.take_back(launch.spec, launch.rendered, scheduler)
            ledger.remove(record.run_id)
        for left in (script, f"{folder}/{rendering.LOG_FOLDER}", folder):
            scheduler.files.remove(left)
        raise
    return [
        states.accepted(record, f"{job_id}_{number}", scheduler, ledger)
        for number, record in enumerate(records, 1)
    ]


def _find(token: str, scheduler: Scheduler) -> str | None:
    """The array of a submission whose answer got lost."""
    try:
        found = [j.job_id for j in scheduler.my_jobs() if token in j.comment]
    except UserError:
        return None
    return found[0].split("_")[0] if found else None


def _script(launch: Launch) -> RenderedFile:
    return next(f for f in launch.rendered.files if f.path == launch.rendered.script)


def _write(launch: Launch, record: RunRecord, scheduler: Scheduler) -> None:
    """A task's own folder, its script with its own token in it."""
    files = [
        replace(f, content=f.content.replace(launch.spec.token.encode(), record.token.encode()))
        if f.path == launch.rendered.script
        else f
        for f in launch.rendered.files
    ]
    rendering.write(scheduler.files, launch.spec.run_dir, files, group=bool(launch.spec.site.group))
    if launch.spec.site.group:
        scheduler.files.set_group(launch.spec.run_dir, launch.spec.site.group)


def _array_script(
    launches: Sequence[Launch], folder: str, name: str, token: str, at_once: int | None
) -> bytes:
    option = rendering.sbatch_option
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH {option(k, v or None)}" for k, v in needs(launches[0]) if k != "array"]
    limit = f"%{at_once}" if at_once else ""
    logs = f"{folder}/task-%a/{rendering.LOG_FOLDER}/{name}-%A_%a.out"
    lines += [
        f"#SBATCH {option('job-name', name)}",
        f"#SBATCH {option('comment', token)}",
        f"#SBATCH {option('output', logs)}",
        f"#SBATCH {option('array', f'1-{len(launches)}{limit}')}",
        "# Each task of the sweep runs the job of its own folder.",
        "set -euo pipefail",
        "export GPT_TUNE_JOB_ID=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}",
        f'exec bash {rendering.quote(folder)}/task-"$SLURM_ARRAY_TASK_ID"/{launches[0].rendered.script}',
    ]
    return "\n".join(lines).encode() + b"\n"
