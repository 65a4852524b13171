"""Owns the helper process around pyslurm: started when needed, bounded in time, ended when it misbehaves."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from typing import IO, Any

from gpt_tune.schedulers import slurm_api_helper
from gpt_tune.schedulers.commands import clean_environment

_START_SECONDS = 10.0
_LONGEST_COMPLAINT = 2000


class HelperTrouble(Exception):
    """The helper gave no usable answer. sent: whether the request may have been carried out all the same."""

    def __init__(self, words: str, sent: bool) -> None:
        super().__init__(words)
        self.words = words
        self.sent = sent


class Refused(Exception):
    """Slurm answered with an error of its own. words: as Slurm's commands print them."""

    def __init__(self, words: str, errno: int | None) -> None:
        super().__init__(words)
        self.words = words
        self.errno = errno


class Unsayable(Exception):
    """pyslurm does not understand the request; nothing was sent."""


class Helper:
    """One helper process, used by one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._rest = b""
        self.version = ""  # pyslurm's own

    def ask(self, do: str, timeout: float, **more: Any) -> Any:
        """One request. Refused, Unsayable, or HelperTrouble."""
        with self._lock:
            process = self._running()
            number = next(self._numbers)
            line = json.dumps({"id": number, "do": do, **more}).encode() + b"\n"
            try:
                assert process.stdin is not None
                process.stdin.write(line)
                process.stdin.flush()
            except OSError as error:
                raise self._trouble("ended", sent=False) from error
            data = self._line(time.monotonic() + timeout, do)
            if data.get("id") != number:
                raise self._trouble("answered something else", sent=True)
        if "refused" in data:
            words = "\n".join(filter(None, [self._said(), str(data["refused"])]))
            raise Refused(words, data.get("errno"))
        if "unsaid" in data:
            raise Unsayable(str(data["unsaid"]))
        if "answer" not in data:
            raise HelperTrouble(f"pyslurm failed: {data.get('broken')}", sent=True)
        return data["answer"]

    def start(self) -> None:
        """Have it running. HelperTrouble says why pyslurm cannot be imported."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    # -- the process -------------------------------------------------------------------------------
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        complaints = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        try:
            process = subprocess.Popen(
                [sys.executable, slurm_api_helper.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=clean_environment(os.environ),
                start_new_session=True,  # Ctrl-C ends what waits for it, not the call under way
            )
        except OSError as error:
            complaints.close()
            raise HelperTrouble(
                f"pyslurm's process cannot be started: {error.strerror}", sent=False
            ) from error
        self._process, self._complaints, self._rest = process, complaints, b""
        weakref.finalize(self, _kill, process)
        hello = self._line(time.monotonic() + _START_SECONDS, "import pyslurm", sent=False)
        if not hello.get("pyslurm"):
            words = hello.get("error") or "it has no version"
            self._end()
            raise HelperTrouble(f"pyslurm cannot be imported: {words}", sent=False)
        self.version = str(hello["pyslurm"])
        return process

    def _line(self, deadline: float, what: str, sent: bool = True) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise self._trouble(f"gave no answer to {what!r} in time", sent)
            block = os.read(process.stdout.fileno(), 1 << 16)
            if not block:
                raise self._trouble("ended", sent)
            self._rest += block
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            data = json.loads(line)
        except ValueError as error:
            raise self._trouble("answered in no known form", sent) from error
        return data if isinstance(data, dict) else {}

    def _trouble(self, how: str, sent: bool) -> HelperTrouble:
        """End what cannot be trusted any more, and say why."""
        process = self._process
        said = self._said()
        self._end()
        code = process.returncode if process is not None else None
        words = f"pyslurm's process {how}" + (f" (exit code {code})" if code not in (None, -9) else "")
        return HelperTrouble(f"{words}: {said}" if said else words, sent)

    def _said(self) -> str:
        """The last line that libslurm printed since the last look."""
        if self._complaints is None:
            return ""
        with contextlib.suppress(OSError, ValueError):
            size = self._complaints.seek(0, os.SEEK_END)
            self._complaints.seek(max(0, size - _LONGEST_COMPLAINT))
            lines = self._complaints.read().decode("utf-8", "replace").split("\n")
            self._complaints.truncate(0)
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def _end(self) -> None:
        if self._process is not None:
            _kill(self._process)
        if self._complaints is not None:
            self._complaints.close()
        self._process = self._complaints = None


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)
