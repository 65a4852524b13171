"""Owns a stand-in for pyslurm in the helper process. FAKE_PYSLURM says what goes wrong: WHAT or WHAT:WHERE."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

WHAT, _, WHERE = os.environ.get("FAKE_PYSLURM", "").partition(":")
__version__ = os.environ.get("FAKE_PYSLURM_VERSION", "22.5.0")
if WHAT == "no-import":
    raise ImportError("libslurmfull.so: cannot open shared object file")
if WHAT == "dies-on-import":
    os.write(2, b"fatal: Unable to process configuration file\n")
    os._exit(1)
if WHAT == "hangs-on-import":
    time.sleep(600)


class RPCError(Exception):
    """As pyslurm's."""

    def __init__(self, errno: int, words: str) -> None:
        super().__init__(words)
        self.errno = errno


def _may_fail(where: str) -> None:
    record = os.environ.get("FAKE_PYSLURM_LOG")
    if record:
        with Path(record).open("a") as file:
            file.write(where + "\n")
    if WHERE and where != WHERE:
        return
    if WHAT == "hang":
        time.sleep(600)
    if WHAT == "crash":
        os.write(2, b"slurm: fatal: the library gave up\n")
        os.kill(os.getpid(), signal.SIGSEGV)
    if WHAT == "exit":
        os._exit(3)
    if WHAT == "noise":
        os.write(1, b"slurm_load_jobs error: on standard output\n")
        os.write(2, b"slurm_load_jobs error: on standard error\n")
        print('{"id": 1, "answer": "a forged line"}')
    if WHAT == "refuse":
        os.write(2, b"sbatch: error: QOSMaxNodePerUserLimit\n")
        raise RPCError(2000, "Invalid partition name specified")
    if WHAT == "lost":
        raise RPCError(1007, "Unable to contact slurm controller (connect failure)")
    if WHAT == "picky":
        raise ValueError("Invalid Signal: USR1.")
    if WHAT == "bug":
        raise TypeError("unexpected None")


class _Record:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> None:
        return None


class slurmctld:
    """The controller."""

    @staticmethod
    def ping_primary() -> _Record:
        _may_fail("ping")
        return _Record(is_responding=WHAT != "down")


class Job(_Record):
    """One job that runs."""

    def __init__(self, number: int, **values: Any) -> None:
        super().__init__(id=number, **values)

    @staticmethod
    def load(number: int) -> Job:
        _may_fail("jobs")
        if number not in (7, 8):
            raise RPCError(2017, "Invalid job id specified")
        return Jobs.load()[7 if number == 7 else 9]

    def cancel(self) -> None:
        self._do("cancel")

    def hold(self, mode: str) -> None:
        """As the real one of 25.11.2 does with a mode: it dies."""
        os.kill(os.getpid(), signal.SIGSEGV)

    def release(self) -> None:
        self._do("release")

    def requeue(self) -> None:
        self._do("requeue")

    def send_signal(self, name: str, steps: str) -> None:
        """As the real one: nothing is said of a job that has ended."""
        if self.id != 9:
            self._do(f"signal {name} {steps}")

    def _do(self, what: str) -> None:
        _may_fail(what)
        if self.id != 7:
            raise RPCError(2017, "Invalid job id specified")


class Jobs:
    """That job, a task of an array, and somebody else's job."""

    @staticmethod
    def load() -> dict[int, Job]:
        _may_fail("jobs")
        common = {
            "num_nodes": 2,
            "gres_per_node": {"gpu:b200": 8},
            "submit_time": 1_700_000_000,
            "start_time": 1_700_000_060,
        }
        return {
            7: Job(7, name="x", state="RUNNING", state_reason="None", user_id=os.getuid(), comment="gpt-tune-1",
                   standard_output="/runs/x-7.out", working_directory="/runs", **common),
            9: Job(9, name="a", state="FAILED", array_id=8, array_task_id=3, exit_code=5, end_time=1_700_000_100,
                   user_id=os.getuid(), **common),
            10: Job(10, name="theirs", state="PENDING", state_reason="Priority", user_id=os.getuid() + 1, **common),
        }  # fmt: skip


class JobSubmitDescription:
    """Keeps what it is given."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def submit(self) -> int:
        _may_fail("submit")
        target = os.environ.get("FAKE_PYSLURM_DESCRIPTION")
        if target:
            Path(target).write_text(json.dumps(self.values))
        return 4711
