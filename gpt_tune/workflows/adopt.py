"""Owns taking a job that gpt-tune did not submit into the ledger: its logs, its script, what its log says it trains."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from gpt_tune import clusters, toml
from gpt_tune.errors import UserError
from gpt_tune.jobs import clock
from gpt_tune.jobs.preparing import new_run_id
from gpt_tune.jsonable import as_json
from gpt_tune.ledger import JobRecord, Ledger, RunRecord
from gpt_tune.logs.parser import LogParser
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.build import to_dict
from gpt_tune.profiles.schema import Profile
from gpt_tune.schedulers import hostlist, log_patterns, slurm_shown, slurm_words
from gpt_tune.schedulers.base import Files, JobStatus, Scheduler
from gpt_tune.schedulers.slurm_cli import SlurmCli

TAG = "adopted"
_HEAD_BYTES = 4 << 20  # of a log: what a run is stands at its beginning
_SECONDS = 30.0


def adopt(job_id: str, scheduler: Scheduler | None = None, ledger: Ledger | None = None) -> RunRecord:
    """Keep a job of mine as a run from now on. UserError when there is no such job, or it is a run already."""
    ledger = ledger or Ledger.open()
    scheduler = scheduler or clusters.connect()
    known = [r for r in ledger.matching(job_id) if r.cluster == scheduler.cluster and job_id in r.job_ids]
    if known:
        raise UserError(
            f"Job {job_id} is run {known[0].run_id} already.", f"gpt-tune watch {known[0].run_id}"
        )
    status = scheduler.statuses([job_id]).get(job_id)
    if status is None:
        raise UserError(f"There is no job {job_id} on {scheduler.cluster}.", "`squeue --me` lists yours.")
    words = shown(scheduler, job_id)
    logs = log_paths(status, words)
    record = _record(status, words, logs, scheduler)
    record = replace(
        record, shape=_shape_json(shape_of_log(replace(record, job_ids=(job_id,)), scheduler.files))
    )
    with ledger.batch():
        ledger.add(record)
        ledger.put_job(
            JobRecord(
                record.run_id, job_id, 0, status.state, status.reason, status.submitted_at, status.started_at,
                status.ended_at, status.exit_code, status.node_list,
            )
        )  # fmt: skip
    return ledger.get(record.run_id)


def log_paths(status: JobStatus, shown: dict[str, str]) -> tuple[str, ...]:
    """Where a job writes: Slurm's own words, absolute; patterns stay in them."""
    found = [shown.get("StdOut", ""), shown.get("StdErr", "")]
    paths = [p for p in found if p.startswith("/") and p != "/dev/null"] or [
        p for p in status.log_paths if p != "/dev/null"
    ]
    return tuple(dict.fromkeys(paths))


def shown(scheduler: Scheduler, job_id: str) -> dict[str, str]:
    """`scontrol show job`; empty for other schedulers and forgotten jobs."""
    if not isinstance(scheduler, SlurmCli):
        return {}
    scheduler.calls += 1
    done = scheduler.commands.run(slurm_shown.arguments(job_id, local=False), _SECONDS)
    return slurm_shown.parse(done.text) if done.returncode == 0 else {}


def _record(
    status: JobStatus, shown: dict[str, str], logs: tuple[str, ...], scheduler: Scheduler
) -> RunRecord:
    run_id = new_run_id()
    work = status.work_dir or shown.get("WorkDir", "")
    command = shown.get("Command", "")
    profile = Profile(name=status.name, recipe="custom", cluster=scheduler.cluster)
    return RunRecord(
        run_id=run_id,
        token=f"adopted-{run_id}",
        cluster=scheduler.cluster,
        scheduler="local" if scheduler.kind == "local" else "slurm",
        name=status.name,
        recipe="custom",
        run_dir=work or (posixpath.dirname(logs[0]) if logs else "/"),
        script=command if command.startswith("/") else "",
        created_at=status.submitted_at or clock.now(),
        phase="submitted",
        state=status.state,
        reason=status.reason,
        log_paths=logs,
        profile=toml.dump(to_dict(profile)),
        gpus=status.gpus or gpus_of(shown),
        nodes=status.nodes,
        node_list=status.node_list,
        partition=status.partition,
        submitted_at=status.submitted_at,
        started_at=status.started_at,
        expected_start=status.expected_start,
        seen_at=clock.now(),
        tags=(TAG,),
    )


def gpus_of(shown: dict[str, str]) -> int:
    """GPUs by the job's TRES: `cpu=8,mem=1G,node=2,gres/gpu=16,gres/gpu:b200=16`."""
    words = [w for key in ("AllocTRES", "ReqTRES", "TRES") for w in shown.get(key, "").split(",")]
    return max((g.count for w in words for g in slurm_words.gpus(w)), default=0)


def shape_of_log(record: RunRecord, files: Files) -> ModelShape | None:
    """The model that a job trains, as far as the beginning of its log says."""
    nodes = hostlist.expand(record.node_list)
    parser = LogParser(gpus=record.gpus or None)
    for pattern in record.log_paths:
        job_id = record.job_ids[0] if record.job_ids else ""
        known = (
            log_patterns.values(job_id, name=record.name, host=nodes[0] if nodes else None) if job_id else {}
        )
        path = log_patterns.expand(pattern, known) if known else pattern
        if "*" in path or not files.size(path):
            continue
        parser.feed_block(files.read(path, limit=_HEAD_BYTES), path)
    return parser.facts.shape


def _shape_json(shape: ModelShape | None) -> dict[str, object] | None:
    return None if shape is None else as_json(shape)
