"""Owns following log files: any number of one job's, from the end, bounded in memory, safe to rotate.

Polling by stat only (no inotify on NFS or Lustre). It never talks to the scheduler.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from gpt_tune.errors import UserError
from gpt_tune.logs.clean import MAX_LINE, split_lines
from gpt_tune.logs.folders import logs_in

TAIL_BYTES = 256 * 1024  # read at once on opening: a few thousand lines
BLOCK_BYTES = 256 * 1024  # one step backwards into history
POLL_BYTES = 4 * 1024 * 1024  # at most this much of one file a poll, so that a screen stays live
MAX_PARTIAL = 1024 * 1024  # an unfinished line longer than this is cut
FOLDER_POLLS = 20  # polls between two looks for new files in a folder
OVERLAP = 64  # bytes before the offset that must not have changed


class FileStat(NamedTuple):
    """size in bytes; identity changes when the file was replaced ("" when unknown); modified in epoch seconds."""

    size: int
    identity: str
    modified: float | None


class Reader(Protocol):
    """How bytes of a file are got: local, or at the far end of ssh."""

    def stat(self, path: str) -> FileStat | None: ...
    def read(self, path: str, offset: int, limit: int) -> bytes: ...
    def expand(self, pattern: str) -> list[str]: ...
    def renamed(self, path: str, identity: str) -> str | None:
        """Where the file that stood at `path` under this identity was moved to, if that can be found."""
        ...


class LocalReader:
    """Files of this machine (NFS and Lustre included): opened anew for each read, so that NFS revalidates."""

    def stat(self, path: str) -> FileStat | None:
        try:
            found = Path(path).stat()
        except OSError:
            return None
        return FileStat(found.st_size, f"{found.st_dev}:{found.st_ino}", found.st_mtime)

    def read(self, path: str, offset: int, limit: int) -> bytes:
        try:
            with Path(path).open("rb", buffering=0) as file:
                return os.pread(file.fileno(), limit, offset)
        except OSError:
            return b""

    def expand(self, pattern: str) -> list[str]:
        if pattern.endswith("/"):
            try:
                return logs_in(pattern.rstrip("/") or "/")
            except UserError:
                return []  # empty still, or gone
        return sorted(glob.glob(pattern))  # noqa: PTH207 (absolute patterns)

    def renamed(self, path: str, identity: str) -> str | None:
        folder, name = Path(path).parent, Path(path).name
        try:
            entries = [e for e in os.scandir(folder) if e.name.startswith(name) and e.name != name]
        except OSError:
            return None
        for entry in entries:
            found = self.stat(entry.path)
            if found is not None and found.identity == identity:
                return entry.path
        return None


class FilesReader:
    """Files behind the scheduler's `Files` interface, which knows sizes but no identities."""

    def __init__(self, files: _Files) -> None:
        self._files = files

    def stat(self, path: str) -> FileStat | None:
        size = self._files.size(path)
        return None if size is None else FileStat(size, "", None)

    def read(self, path: str, offset: int, limit: int) -> bytes:
        return self._files.read(path, offset, limit)

    def expand(self, pattern: str) -> list[str]:
        return [pattern]

    def renamed(self, path: str, identity: str) -> str | None:
        return None


class _Files(Protocol):
    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes: ...
    def size(self, path: str) -> int | None: ...


@dataclass(slots=True)
class Batch:
    """Lines of one file, safe to show. transient: indexes of progress-bar states that were overwritten.

    reset: the file was truncated or replaced, and these are the first lines of what stands there now.
    offset: byte where the batch begins. raw: the same lines as they stood in the file.
    """

    source: str
    lines: list[str]
    transient: set[int] = field(default_factory=set)
    reset: bool = False
    offset: int = 0
    raw: bytes = b""


@dataclass(slots=True)
class Source:
    """One followed file. [start, offset) is what was handed on; `waiting` until the file exists."""

    path: str
    start: int = 0
    offset: int = 0
    size: int = 0
    identity: str = ""
    modified: float | None = None
    waiting: bool = True
    partial: bytes = b""
    skipping: bool = False  # inside a line that was cut
    before: bytes = b""  # the bytes just before offset, to notice a rewrite

    @property
    def behind(self) -> int:
        """Bytes not read yet."""
        return max(0, self.size - self.offset)


class Follower:
    """Follows files by path or pattern. Files present at opening are read from their end, later ones whole."""

    def __init__(
        self,
        paths: Sequence[str | Path],
        reader: Reader | None = None,
        tail_bytes: int | None = TAIL_BYTES,
        poll_bytes: int = POLL_BYTES,
    ) -> None:
        """A path that ends in a slash is a folder, of which all logs are followed, also those that come later.

        tail_bytes None reads everything from the start.
        """
        self._reader: Reader = reader or LocalReader()
        self._patterns = [str(p) for p in paths]
        self._tail_bytes = tail_bytes
        self._poll_bytes = poll_bytes
        self.sources: dict[str, Source] = {}
        self._opened = False
        self._polls = 0

    def poll(self) -> list[Batch]:
        """New whole lines of every file, at most poll_bytes of each."""
        self._discover()
        self._polls += 1
        batches: list[Batch] = []
        for source in self.sources.values():
            batches.extend(self._poll_one(source))
        self._opened = True
        return batches

    @property
    def behind(self) -> int:
        """Bytes written but not read yet, over all files."""
        return sum(s.behind for s in self.sources.values())

    def older(self, path: str, limit: int = BLOCK_BYTES) -> Batch | None:
        """The lines just before the oldest ones handed on; None at the start of the file."""
        source = self.sources.get(path)
        if source is None or source.start <= 0:
            return None
        begin = max(0, source.start - limit)
        block = self._reader.read(path, begin, source.start - begin)
        if begin > 0:
            newline = block.find(b"\n")
            # A line longer than the block is shown cut rather than searched for backwards without bound.
            cut = newline + 1 if 0 <= newline < len(block) - 1 else 0
            begin, block = begin + cut, block[cut:]
        source.start = begin
        lines, transient = split_lines(block)
        return Batch(path, lines, transient, offset=begin, raw=block)

    def flush(self) -> list[Batch]:
        """Unfinished last lines, for a job that will write no more."""
        batches = []
        for source in self.sources.values():
            if source.partial and not source.skipping:
                raw, source.partial = source.partial, b""
                lines, transient = split_lines(raw)
                batches.append(Batch(source.path, lines, transient, offset=source.offset - len(raw), raw=raw))
        return batches

    def _discover(self) -> None:
        for pattern in self._patterns:
            if pattern.endswith("/"):
                # A restarted launcher writes into a folder of its own; going through all of them is not for every poll.
                found = self._reader.expand(pattern) if self._polls % FOLDER_POLLS == 0 else []
            else:
                found = self._reader.expand(pattern) if glob.has_magic(pattern) else [pattern]
            for path in found:
                self.sources.setdefault(path, Source(path))

    def _poll_one(self, source: Source) -> list[Batch]:
        stat = self._reader.stat(source.path)
        if stat is None:
            return []
        batches: list[Batch] = []
        if source.waiting:
            self._begin(source, stat)
        elif self._replaced(source, stat):
            batches.extend(self._rest_of_renamed(source))
            _restart(source, stat)
            batches.append(Batch(source.path, [], reset=True))
        source.size, source.modified = stat.size, stat.modified
        if stat.size > source.offset:
            batches.extend(self._read_on(source))
        return batches

    def _begin(self, source: Source, stat: FileStat) -> None:
        source.waiting = False
        source.identity = stat.identity
        if self._opened or self._tail_bytes is None or stat.size <= self._tail_bytes:
            return
        begin = stat.size - self._tail_bytes
        head = self._reader.read(source.path, begin, self._tail_bytes)
        newline = head.find(b"\n")
        source.start = source.offset = begin + (newline + 1 if newline >= 0 else 0)

    def _replaced(self, source: Source, stat: FileStat) -> bool:
        if stat.size < source.offset or stat.identity != source.identity:
            return True
        if not source.before or stat.size == source.size:
            return False
        # Truncated in place and already longer again: only the bytes tell.
        kept = self._reader.read(source.path, source.offset - len(source.before), len(source.before))
        return kept != source.before

    def _rest_of_renamed(self, source: Source) -> list[Batch]:
        """What was still written to a rotated file before the new one took its place."""
        moved = self._reader.renamed(source.path, source.identity)
        if moved is None:
            return []
        rest = source.partial + self._reader.read(moved, source.offset, self._poll_bytes)
        source.partial = b""
        if not rest.strip():
            return []
        lines, transient = split_lines(rest)
        return [Batch(source.path, lines, transient, offset=source.offset, raw=rest)]

    def _read_on(self, source: Source) -> list[Batch]:
        block = self._reader.read(source.path, source.offset, self._poll_bytes)
        if not block:
            return []
        begin = source.offset - len(source.partial)
        source.offset += len(block)
        source.before = (source.before + block)[-OVERLAP:]
        whole = _take_whole(source, block)
        if not whole:
            return []
        lines, transient = split_lines(whole)
        return [Batch(source.path, lines, transient, offset=begin, raw=whole)]


def _take_whole(source: Source, block: bytes) -> bytes:
    """The finished lines of partial + block; the rest is kept for the next poll."""
    if source.skipping:
        newline = block.find(b"\n")
        if newline < 0:
            return b""
        source.skipping = False
        block = block[newline + 1 :]
    end = max(block.rfind(b"\n"), _last_bar_end(block))
    if end < 0:
        source.partial += block
        if len(source.partial) <= MAX_PARTIAL:
            return b""
        cut, source.partial, source.skipping = source.partial[: 4 * MAX_LINE], b"", True
        return cut + b"\n"
    whole = source.partial + block[: end + 1]
    source.partial = block[end + 1 :]
    return whole


def _last_bar_end(block: bytes) -> int:
    """The last carriage return that ended a bar's state; one at the very end may be half of a \\r\\n."""
    return block.rfind(b"\r", 0, len(block) - 1)


def _restart(source: Source, stat: FileStat) -> None:
    source.start = source.offset = 0
    source.identity = stat.identity
    source.partial = source.before = b""
    source.skipping = False
