"""Owns following files at the far end of ssh: one channel a job, which comes back where it was when it breaks."""

from __future__ import annotations

import os
import random
import secrets
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from shlex import quote
from typing import IO

from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.schedulers.remote_files import RemoteFiles, RemoteStat
from gpt_tune.schedulers.ssh import Connection

TAIL_BYTES = 256 * 1024  # of each file at first; what lies before is read on demand
OVERLAP = 64  # bytes sent again, to notice a file that was rewritten in place
_WINDOW_BYTES = 8 * 1024 * 1024  # kept of one file until it is read; then the channel waits
_KEPT_BYTES = 64 * 1024  # kept behind what was read
_CHUNK_BYTES = 1024 * 1024
_POLL_SECONDS = 1  # how often the far end looks
_SILENCE_SECONDS = 60.0  # without even a sign of life the channel is taken for dead
_BACK_OFF_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)

# Runs in sh on the login node, one stat and one sleep a second. It ends by itself when nobody listens: the
# sign of life then meets a closed pipe. Files are $1, $3, ...; offsets to begin at $2, $4, ... (-N: the last
# N bytes). Frames: `S i size identity modified`, `D i offset length` followed by the bytes, `N i`, `H`.
_FAR_END = r"""
i=0
while [ $# -gt 0 ]; do
  i=$((i + 1)); eval "f$i=\$1 o$i=\$2 l$i=none"; shift 2
done
n=$i
while :; do
  i=0
  while [ $i -lt $n ]; do
    i=$((i + 1)); eval "f=\$f$i o=\$o$i l=\$l$i"
    s=$(stat -L -c '%s %d:%i %Y' -- "$f" 2>/dev/null) || s=
    if [ -z "$s" ]; then
      [ "$l" = "" ] || echo "N $i" || exit 0
      eval "l$i= o$i=0"; continue
    fi
    size=${s%% *}; id=${s#* }; id=${id%% *}; old=${l#* }; old=${old%% *}
    case $o in -*) o=$((size + o)); [ $o -ge 0 ] || o=0;; esac
    if [ $size -lt $o ] || { [ "$l" != none ] && [ "$l" != "" ] && [ "$old" != "$id" ]; }; then o=0; fi
    [ "$s" = "$l" ] || echo "S $i $s" || exit 0
    if [ $size -gt $o ]; then
      b=$((o - OVERLAP)); [ $b -ge 0 ] || b=0
      c=$((size - b)); [ $c -le CHUNK ] || c=CHUNK
      printf 'D %s %s %s\n' $i $b $c || exit 0
      { tail -c +$((b + 1)) -- "$f"; cat /dev/zero; } 2>/dev/null | head -c $c || exit 0
      o=$((b + c))
    fi
    eval "o$i=\$o l$i=\$s"
    [ $o -lt $size ] && busy=1
  done
  echo H || exit 0
  [ "$busy" ] || sleep POLL
  busy=
done
"""


@dataclass(slots=True)
class _File:
    """One followed file. window: the bytes [begin, begin + len) as they arrived. read: how far they were read."""

    path: str
    stat: RemoteStat | None = None
    known: bool = False  # whether the far end has looked at it
    begin: int = 0
    window: bytearray = field(default_factory=bytearray)
    read: int = 0
    started: bool = False
    generation: int = 0  # counts rewrites in place, which the identity does not show

    @property
    def end(self) -> int:
        return self.begin + len(self.window)


class RemoteTail:
    """Live files of one job. A thread receives; `stat` and `read` answer from what has arrived.

    problem: None while the channel is up, else what is wrong, for the screen. Bytes before the first tail are
    read by a call of their own.
    """

    def __init__(
        self, connection: Connection, paths: Sequence[str], files: RemoteFiles | None = None
    ) -> None:
        self._connection = connection
        self._files = files or RemoteFiles(connection)
        self._state = threading.Condition()
        self._by_path = {path: _File(path) for path in dict.fromkeys(paths)}
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self.problem: UserError | None = None
        self.connects = 0
        self._thread = threading.Thread(target=self._keep_up, name="ssh-tail", daemon=True)
        self._thread.start()

    # -- what readers ask --------------------------------------------------------------------------
    def follows(self, path: str) -> bool:
        return path in self._by_path

    def stat(self, path: str, wait_seconds: float = 5.0) -> RemoteStat | None:
        """The file as last seen. Waits for the first look."""
        file = self._by_path[path]
        with self._state:
            self._state.wait_for(lambda: file.known or self.problem is not None or self._closed, wait_seconds)
            if file.known:
                if file.stat is None:
                    return None
                # Only what has arrived counts: a reader never waits for bytes.
                size = file.end if file.started else file.stat.size
                return RemoteStat(size, f"{file.stat.identity}.{file.generation}", file.stat.modified)
        try:  # the channel is slow to begin, or broken
            found = self._files.stat(path)
        except UserError:
            return None
        return None if found is None else RemoteStat(found.size, f"{found.identity}.0", found.modified)

    def last_seen(self, path: str) -> RemoteStat | None:
        """The file as the channel last saw it; it never asks and never waits."""
        with self._state:
            return self._by_path[path].stat

    def arrived(self, path: str) -> int:
        """Up to which byte the file can be read here; -1 before the first look at it."""
        file = self._by_path[path]
        with self._state:
            if not file.known:
                return -1
            return file.end if file.started or file.stat is None else file.stat.size

    def paths(self) -> tuple[str, ...]:
        return tuple(self._by_path)

    def read(self, path: str, offset: int, limit: int) -> bytes:
        """Bytes of the file: of the window where they are in it, else asked for."""
        file = self._by_path[path]
        with self._state:
            if file.begin <= offset <= file.end:
                start = offset - file.begin
                block = bytes(file.window[start : start + limit])
                file.read = max(file.read, offset + len(block))
                self._trim(file)
                self._state.notify_all()
                return block
        try:
            return self._files.read(path, offset, limit)
        except UserError:  # gone, or the line is: the next look tells
            return b""

    def close(self) -> None:
        """Stop following."""
        with self._state:
            self._closed = True
            self._state.notify_all()
            process = self._process
        if process is not None:
            with suppress(OSError):
                process.kill()
        self._thread.join(timeout=5.0)

    # -- receiving ---------------------------------------------------------------------------------
    def _keep_up(self) -> None:
        failures = 0
        while not self._closed:
            before = self.connects
            try:
                self._connection.ensure()
                self._receive()
                problem: UserError = self._broken()
            except _BeginAgain:
                continue
            except (OSError, ValueError, IndexError):  # half a frame: the channel broke inside it
                problem = self._broken()
            except SchedulerError as error:
                problem = error
            failures = 0 if self.connects > before else failures + 1
            with self._state:
                self.problem = problem
                self._state.notify_all()
                pause = _BACK_OFF_SECONDS[min(failures, len(_BACK_OFF_SECONDS) - 1)]
                self._state.wait_for(lambda: self._closed, pause * random.uniform(0.75, 1.25))

    def _broken(self) -> SchedulerError:
        return SchedulerError(f"The connection to {self._connection.target.host} broke; trying again.", "")

    def _receive(self) -> None:
        """One channel, until it ends."""
        nonce = secrets.token_hex(8)
        with subprocess.Popen(
            self._connection.argv(self._script(), nonce),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=dict(os.environ),
        ) as process:
            with self._state:
                self._process = process
                if self._closed:
                    process.kill()
            assert process.stdout is not None
            watchdog = _Watchdog(process)
            try:
                self._frames(process.stdout, nonce, watchdog)
            finally:
                watchdog.stop()
                process.kill()
                with self._state:
                    self._process = None

    def _script(self) -> str:
        with self._state:
            words = [
                word
                for file in self._by_path.values()
                for word in (quote(file.path), str(file.end) if file.started else f"-{TAIL_BYTES}")
            ]
        body = _FAR_END.replace("OVERLAP", str(OVERLAP)).replace("CHUNK", str(_CHUNK_BYTES))
        return f"export LC_ALL=C\nset -- {' '.join(words)}\n{body.replace('POLL', str(_POLL_SECONDS))}"

    def _frames(self, stream: IO[bytes], nonce: str, watchdog: _Watchdog) -> None:
        files = list(self._by_path.values())
        first_looks = {file.path for file in files}
        while (line := stream.readline()) and line.strip() != nonce.encode():
            pass
        came_back = False
        while line := stream.readline():
            watchdog.pat()
            kind, *words = line.decode("ascii", "replace").split()
            data = _exactly(stream, int(words[2]), watchdog) if kind == "D" else b""
            with self._state:
                self.problem = None
                if kind == "H":
                    self.connects += not came_back
                    came_back = True
                else:
                    file = files[int(words[0]) - 1]
                    self._take(kind, words[1:], data, file, file.path in first_looks)
                    first_looks.discard(file.path)
                self._state.notify_all()
                if kind == "D":
                    self._wait_for_room(file, watchdog)

    def _take(self, kind: str, words: list[str], data: bytes, file: _File, first_look: bool) -> None:
        file.known = True
        if kind == "N":
            if file.stat is not None or not file.started:
                _restart(file)
            file.stat, file.started = None, True
        elif kind == "S":
            stat = RemoteStat(int(words[0]), words[1], float(words[2]))
            other = file.stat is not None and stat.identity != file.stat.identity
            file.stat = stat
            if file.started and (other or stat.size < file.end):
                _restart(file)
                if first_look:  # the far end was told to go on where the old file had got to
                    raise _BeginAgain
            file.started = file.started or stat.size == 0
        elif kind == "D":
            _append(file, int(words[0]), data)

    def _trim(self, file: _File) -> None:
        """Forget what was read long ago."""
        surplus = file.read - _KEPT_BYTES - file.begin
        if surplus > _CHUNK_BYTES:
            del file.window[:surplus]
            file.begin += surplus

    def _wait_for_room(self, file: _File, watchdog: _Watchdog) -> None:
        """Let the far end wait (its pipe fills) while a reader is behind."""
        while len(file.window) > _WINDOW_BYTES and not self._closed:
            watchdog.pat()
            self._state.wait(1.0)
            self._trim(file)


def _append(file: _File, offset: int, data: bytes) -> None:
    """New bytes with their overlap. Bytes that differ from those known mean that the file was rewritten."""
    if not file.started:
        file.begin = file.read = offset
        file.window = bytearray(data)
        file.started = True
        return
    start = offset - file.begin
    known = bytes(file.window[max(0, start) : start + len(data)])
    if start < 0 or offset > file.end or known != data[: len(known)]:
        _restart(file)
        raise _BeginAgain
    file.window += data[len(known) :]


def _restart(file: _File) -> None:
    """The file is another one now: it is read from its start."""
    file.begin = file.read = 0
    file.window = bytearray()
    file.generation += 1


class _BeginAgain(Exception):
    """What the far end sends does not go on where this end is: open the channel anew."""


def _exactly(stream: IO[bytes], count: int, watchdog: _Watchdog) -> bytes:
    parts = []
    while count > 0:
        part = stream.read(min(count, 65536))
        if not part:
            raise ValueError("the channel ended inside a frame")
        watchdog.pat()
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class _Watchdog:
    """Ends a channel that has gone silent: a network that drops packets closes nothing."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._last = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ssh-tail-watchdog", daemon=True)
        self._thread.start()

    def pat(self) -> None:
        self._last = time.monotonic()

    def stop(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(5.0):
            if time.monotonic() - self._last > _SILENCE_SECONDS:
                self._process.kill()
                return
