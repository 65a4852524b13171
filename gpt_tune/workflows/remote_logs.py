"""Owns the logs of runs on clusters behind ssh: live through one channel, and copied here for what reads files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from gpt_tune import resources
from gpt_tune.errors import UserError
from gpt_tune.jobs.logs import expanded, resolved_log_paths
from gpt_tune.ledger import RunRecord
from gpt_tune.logs.follow import FileStat
from gpt_tune.profiles import sites
from gpt_tune.schedulers.local_files import LocalFiles
from gpt_tune.schedulers.remote_files import RemoteFiles
from gpt_tune.schedulers.ssh import Connection, Target
from gpt_tune.schedulers.ssh_tail import RemoteTail

_COPY_BYTES = 8 * 1024 * 1024  # fetched at once


def connection_to(cluster: str) -> Connection | None:
    """The way to a cluster's login node; None for a cluster whose files are here."""
    site = sites.load(cluster)
    return Connection(Target(site.ssh)) if site is not None and site.ssh else None


def reader_of(record: RunRecord, paths: Sequence[str]) -> SshReader | None:
    """A live reader of a run's logs, where they are not here. NotConnected or LoginNeeded when it cannot begin."""
    connection = connection_to(record.cluster)
    if connection is None:
        return None
    connection.ensure()
    # An adopted job's script leaves none; its logs tell of its beginning.
    marks = () if "adopted" in record.tags else (f"{record.run_dir}/exit_code",)
    return SshReader(connection, paths, marks)


def paths_of(record: RunRecord, of_every_job: bool = False) -> list[str]:
    """Where a run's logs are, on its cluster. of_every_job: as patterns, for jobs that are still to come."""
    if of_every_job and record.job_ids:
        return list(dict.fromkeys(expanded(record, "*", pattern) for pattern in record.log_paths))
    connection = connection_to(record.cluster)
    return resolved_log_paths(record, RemoteFiles(connection) if connection else None)


def logs_here(record: RunRecord) -> list[str]:
    """A run's logs as files of this machine: fetched where they are not here, only what is new of them."""
    connection = connection_to(record.cluster)
    if connection is None:
        return resolved_log_paths(record)
    files = RemoteFiles(connection)
    return [_fetched(path, record, files) for path in resolved_log_paths(record, files)]


def _fetched(path: str, record: RunRecord, files: RemoteFiles) -> str:
    folder = resources.state_dir() / "logs" / record.run_id
    LocalFiles().make_dir(str(folder))
    copy = folder / path.strip("/").replace("/", "_")[-200:]
    found = files.stat(path)
    if found is None:
        return str(copy)
    copy.touch(mode=0o600)
    if copy.stat().st_size > found.size:  # another file stands there now
        copy.write_bytes(b"")
    with copy.open("ab") as out:
        while block := files.read(path, out.tell(), _COPY_BYTES):
            out.write(block)
    return str(Path(copy))


_LAST_SECONDS = 30.0


class SshReader:
    """One channel for all files of a job; `close` ends it. problem: what keeps it from reading now.

    marks: small files that are looked at through the same channel, for `mark`.
    """

    def __init__(self, connection: Connection, paths: Sequence[str], marks: Sequence[str] = ()) -> None:
        self._connection = connection
        self._files = RemoteFiles(connection)
        followed = [*(p for p in paths if not _is_pattern(p)), *marks]
        self._tail = RemoteTail(connection, followed, self._files)
        self._more: list[RemoteTail] = []
        self._give_up: float | None = None

    def has_all(self) -> bool:
        """Whether everything that stands in the files now has arrived: the scheduler's word may be quicker.

        Asked once the job has ended. After _LAST_SECONDS it is true, whatever is missing.
        """
        self._give_up = self._give_up or time.monotonic() + _LAST_SECONDS
        if time.monotonic() > self._give_up:
            return True
        try:
            return all(
                (found := self._files.stat(path)) is None or tail.arrived(path) >= found.size
                for tail in (self._tail, *self._more)
                for path in tail.paths()
            )
        except UserError:
            return False

    @property
    def problem(self) -> UserError | None:
        return self._tail.problem

    def stat(self, path: str) -> FileStat | None:
        found = self._of(path).stat(path)
        return None if found is None else FileStat(found.size, found.identity, found.modified)

    def read(self, path: str, offset: int, limit: int) -> bytes:
        return self._of(path).read(path, offset, limit)

    def mark(self, path: str) -> tuple[int, float] | None:
        """Size and time of change of a file of the channel, as last seen: never asks or waits. None for others."""
        found = self._tail.last_seen(path) if self._tail.follows(path) else None
        return None if found is None else (found.size, found.modified)

    def expand(self, pattern: str) -> list[str]:
        try:
            return self._files.expand(pattern)
        except UserError:
            return []

    def renamed(self, path: str, identity: str) -> str | None:
        try:
            return self._files.renamed(path, identity.rpartition(".")[0])
        except UserError:
            return None

    def close(self) -> None:
        for tail in (self._tail, *self._more):
            tail.close()

    def _of(self, path: str) -> RemoteTail:
        """The channel that follows a file; files found by a pattern come on a channel of their own."""
        for tail in (self._tail, *self._more):
            if tail.follows(path):
                return tail
        self._more.append(RemoteTail(self._connection, [path], self._files))
        return self._more[-1]


def _is_pattern(path: str) -> bool:
    return any(c in path for c in "*?[")
