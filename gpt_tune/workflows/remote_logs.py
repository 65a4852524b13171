"""Owns the log reader of a run on a cluster behind ssh: what the channel brings, in the follower's terms."""

from __future__ import annotations

from collections.abc import Sequence

from gpt_tune.errors import UserError
from gpt_tune.logs.follow import FileStat
from gpt_tune.schedulers.remote_files import RemoteFiles
from gpt_tune.schedulers.ssh import Connection
from gpt_tune.schedulers.ssh_tail import RemoteTail


class SshReader:
    """One channel for all files of a job; `close` ends it. problem: what keeps it from reading now."""

    def __init__(self, connection: Connection, paths: Sequence[str]) -> None:
        self._connection = connection
        self._files = RemoteFiles(connection)
        self._tail = RemoteTail(connection, [p for p in paths if not _is_pattern(p)], self._files)
        self._more: list[RemoteTail] = []

    @property
    def problem(self) -> UserError | None:
        return self._tail.problem

    def stat(self, path: str) -> FileStat | None:
        found = self._of(path).stat(path)
        return None if found is None else FileStat(found.size, found.identity, found.modified)

    def read(self, path: str, offset: int, limit: int) -> bytes:
        return self._of(path).read(path, offset, limit)

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
