"""Owns submitting a job exactly once: intent first, then files, then the scheduler."""

from __future__ import annotations

import json
import os
import socket
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from gpt_tune import rendering, toml
from gpt_tune.errors import UserError
from gpt_tune.jobs import clock, reconciling, refreshing, states
from gpt_tune.jsonable import as_json
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.profiles.build import to_dict
from gpt_tune.recipes.base import JobSpec, Rendered
from gpt_tune.schedulers import local_runner, sbatch_lines
from gpt_tune.schedulers.base import Scheduler, SubmitRequest, SubmitUnknown


def submit(
    spec: JobSpec, rendered: Rendered, scheduler: Scheduler, ledger: Ledger, tags: tuple[str, ...] = ()
) -> RunRecord:
    """Write the run folder and submit. Refused: everything is taken back and the error says why.

    SubmitUnknown: the run stays in the ledger, and `refresh` finds out whether it has a job.
    """
    scheduler.check_reachable()
    record = intent(spec, rendered, scheduler, tags)
    ledger.add(record)
    with (
        ExitStack() as undecided
    ):  # Ctrl-C while the scheduler decides: from now on others may look for the job
        undecided.callback(ledger.update, record.run_id, reason=reconciling.LOST_REASON)
        try:
            _write_folder(spec, rendered, scheduler)
            job_id = scheduler.submit(_request(record))
        except SubmitUnknown:
            undecided.pop_all()
            found = reconciling.look_for(record, scheduler, ledger)
            if found.job_id is None:
                raise
            return found
        except UserError:
            undecided.pop_all()
            take_back(spec, rendered, scheduler)
            ledger.remove(record.run_id)
            raise
        undecided.pop_all()
    try:
        record = states.accepted(record, job_id, scheduler, ledger)
    except UserError as error:
        raise UserError(
            f"Job {job_id} is submitted, but this could not be written down: {error.message}",
            f"{error.hint} Do not submit it again: `gpt-tune jobs` finds it by its run folder.",
        ) from error
    if scheduler.kind == "local":  # it runs by now, and asking costs nobody anything
        refreshing.update([record], scheduler, ledger)
    return ledger.get(record.run_id)


def intent(spec: JobSpec, rendered: Rendered, scheduler: Scheduler, tags: tuple[str, ...] = ()) -> RunRecord:
    """The run as it stands in the ledger before the scheduler hears of it."""
    return RunRecord(
        run_id=spec.run_id,
        token=spec.token,
        cluster=scheduler.cluster,
        scheduler=spec.scheduler,
        name=_job_name(spec, rendered),
        recipe=spec.profile.recipe,
        run_dir=spec.run_dir,
        script=f"{spec.run_dir}/{rendered.script}",
        created_at=clock.now(),
        reason="Submitting",
        log_paths=rendered.log_paths,
        profile=toml.dump(to_dict(replace(spec.profile, site=spec.site))),
        plan=_plain(spec.plan.to_json()) if spec.plan else None,
        prediction=_plain(as_json(rendered.prediction)),
        shape=_plain(as_json(spec.model)),
        gpus=spec.gpus,
        nodes=spec.nodes,
        partition=spec.site.partition,
        tags=tags,
        submitter_host=socket.gethostname(),
        submitter_pid=os.getpid(),
        submitter_start=local_runner.process_start(os.getpid()) or "",
    )


def _job_name(spec: JobSpec, rendered: Rendered) -> str:
    """The name the scheduler knows the job by; `%x` of log paths stands for it."""
    script = next((f.content for f in rendered.files if f.path == rendered.script), b"")
    return sbatch_lines.options(script).get("job-name") or spec.profile.name or spec.profile.recipe


def _request(record: RunRecord) -> SubmitRequest:
    return SubmitRequest(script=record.script, run_dir=record.run_dir, name=record.name, token=record.token)


def _write_folder(spec: JobSpec, rendered: Rendered, scheduler: Scheduler) -> None:
    rendering.write(scheduler.files, spec.run_dir, rendered.files, group=bool(spec.site.group))
    if spec.site.group:
        scheduler.files.set_group(spec.run_dir, spec.site.group)


def take_back(spec: JobSpec, rendered: Rendered, scheduler: Scheduler) -> None:
    """Remove the files of a run that never was, and the folders they leave empty."""
    folders = {spec.run_dir, f"{spec.run_dir}/{rendering.LOG_FOLDER}"}
    for file in rendered.files:
        with suppress(UserError):  # what refused the job matters more than a file left over
            scheduler.files.remove(f"{spec.run_dir}/{file.path}")
        folders.update(f"{spec.run_dir}/{p}" for p in PurePosixPath(file.path).parents if str(p) != ".")
    for folder in sorted(folders, key=len, reverse=True):
        with suppress(UserError):
            scheduler.files.remove(folder)


def _plain(data: Any) -> dict[str, Any]:
    """Plain JSON data: NumPy scalars and the like become numbers."""
    result: dict[str, Any] = json.loads(json.dumps(data, default=float))
    return result
