"""Owns finding and ending a private cluster's processes, and nobody else's."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_DAEMONS = ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd", "slurmstepd")


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Poll `condition` until it is true; RuntimeError naming `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not happen within {seconds:g} s")
        time.sleep(0.02)


def read_pid(path: Path) -> int | None:
    try:
        return int(path.read_text().strip())
    except (OSError, ValueError):
        return None


def start_time(pid: int) -> str | None:
    """The process's start in clock ticks since boot, which with the pid names it for ever. None when gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rsplit(")", 1)[1].split()
    return None if fields[0] in "ZX" else fields[19]


def is_alive(pid: int) -> bool:
    return start_time(pid) is not None


def of_cluster(folder: Path) -> list[int]:
    """Every daemon and job process of the cluster in `folder`, found by environment or command line."""
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _belongs(p, folder)]


def _belongs(process: Path, folder: Path) -> bool:
    try:
        command = (process / "cmdline").read_bytes()
        environment = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    program = Path(os.fsdecode(command.split(b"\0")[0].split(b":")[0].split(b" ")[0] or b"-")).name
    if program == "munged":
        return os.fsencode(f"{folder}/munge/") in command
    if f"SLURM_CONF={folder}/slurm.conf".encode() not in environment:
        return False
    # A shell of `make cluster` and the tests themselves have SLURM_CONF too; only a job has SLURM_JOB_ID.
    return program in _DAEMONS or any(e.startswith(b"SLURM_JOB_ID=") for e in environment)


def kill(pids: Iterable[int], signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGKILL)) -> None:
    """Send each signal in turn, 3 s apart at most, until all of `pids` are gone."""
    left = [pid for pid in pids if is_alive(pid)]
    for number in signals:
        for pid in left:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + 3
        while (left := [pid for pid in left if is_alive(pid)]) and time.monotonic() < deadline:
            time.sleep(0.02)
