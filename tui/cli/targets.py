"""Owns what an ID argument means: an existing file is a log, a folder its logs, anything else a run id or job id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpt_tune.errors import UserError, check_given, shown
from gpt_tune.resources import existing, existing_dir

if TYPE_CHECKING:
    from gpt_tune.ledger import RunRecord
    from gpt_tune.workflows.foreign import ForeignJob


@dataclass(frozen=True, slots=True)
class Target:
    """Log files, and the run they are of when it is one of ours, or the job when it is another's."""

    paths: tuple[str, ...]
    record: RunRecord | None = None
    foreign: ForeignJob | None = None


def target_of(names: Sequence[str], fetch: bool = True, fresh: bool = False, growing: bool = False) -> Target:
    """What the arguments of watch, parse or diagnose stand for. fetch: logs of another machine are copied here.
    fresh: the run's cluster is asked first how the run stands. growing: a folder stays one, since more logs may come.
    """
    for name in names:
        check_given(name, "the run or log file")
    files = [n for n in names if existing(n)]
    if len(files) == len(names):
        from gpt_tune.logs.folders import logs_in

        paths: list[str] = []
        for name in files:
            path = str(Path(name).expanduser())
            logs = logs_in(path) if existing_dir(name) else [path]
            paths += [f"{path.rstrip('/')}/"] if growing and existing_dir(name) else logs
        return Target(tuple(dict.fromkeys(paths)))
    missing = next(n for n in names if n not in files)
    if len(names) > 1 or _looks_like_path(missing):
        raise UserError(
            f"There is no file {shown(missing)}.", "Check the path; a run id or job id stands alone."
        )
    from gpt_tune import jobs
    from gpt_tune.ledger import Ledger
    from gpt_tune.workflows.remote_logs import logs_here, paths_of

    try:
        record = jobs.find(missing)
    except UserError as unknown:
        return _foreign(missing, unknown)
    if fresh and record.active:
        jobs.refresh(Ledger.open())  # a cluster that does not answer leaves the last state
        record = jobs.find(record.run_id)
    return Target(tuple(logs_here(record) if fetch else paths_of(record)), record)


def _foreign(name: str, unknown: UserError) -> Target:
    """A job of mine that gpt-tune did not submit, else the error that it is not known."""
    from gpt_tune.workflows import foreign

    job = foreign.find(name)
    if job is None:
        raise unknown
    if not job.log_paths:
        raise UserError(f"Slurm does not say where job {name} writes its log.", "Name the log file instead.")
    return Target(job.log_paths, None, job)


def _looks_like_path(name: str) -> bool:
    return "/" in name or name.endswith((".log", ".out", ".err", ".txt"))
