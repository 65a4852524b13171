"""Owns where a run's logs are: the scheduler's patterns filled in."""

from __future__ import annotations

import fnmatch
import posixpath

from gpt_tune.ledger import RunRecord
from gpt_tune.schedulers import hostlist, log_patterns
from gpt_tune.schedulers.base import Files
from gpt_tune.schedulers.commands import user_name
from gpt_tune.schedulers.local_files import LocalFiles


def resolved_log_paths(record: RunRecord, files: Files | None = None) -> list[str]:
    """Absolute log files of all jobs of a run, oldest first.

    A pattern that differs by node or task becomes the files that exist; while there is none, the pattern
    itself with `*` for what is not known yet.
    """
    found: list[str] = []
    for job_id in record.job_ids:
        for pattern in record.log_paths:
            found += _files_of(expanded(record, job_id, pattern), files or LocalFiles())
    return list(dict.fromkeys(found))


def expanded(record: RunRecord, job_id: str, pattern: str) -> str:
    """One pattern for one job; `*` stands for what is not known yet or differs between tasks."""
    nodes = hostlist.expand(record.node_list)
    known = log_patterns.values(
        job_id,
        name=record.name,
        user=user_name(),
        host=nodes[0] if nodes else None,  # the batch script runs on the first node
    )
    return log_patterns.expand(pattern, known)


def touch(record: RunRecord, files: Files) -> None:
    """Create the log files whose names are known, so that they can be opened before the job starts."""
    for pattern in record.log_paths:
        path = expanded(record, record.job_ids[-1], pattern)
        if "*" not in path:
            files.make_dir(posixpath.dirname(path))
            files.touch(path)


def _files_of(path: str, files: Files) -> list[str]:
    if "*" not in path:
        return [path]
    folder, name = posixpath.split(path)
    matches = [
        f"{folder}/{n}" for n in files.list(folder) if fnmatch.fnmatchcase(n, name.replace("[", "[[]"))
    ]
    return matches or [path]
