"""Owns the small process that stands between a local job and the world: it outlives gpt-tune and keeps records.

Run as a script, standard library only: `python -I -S local_runner.py RECORD_JSON`. It detaches, starts the job
script with bash in a session of its own, waits, and leaves the exit code in the run folder. SIGTERM ends the
job: TERM, then KILL.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

START_WITHIN_SECONDS = 15.0
GRACE_SECONDS = 30.0  # between TERM and KILL, as Slurm's KillWait: time to save a checkpoint


def process_start(pid: int) -> str | None:
    """Start of a process in clock ticks since boot: with the pid its unique name. None when it is gone."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in (b"Z", b"X") else fields[19].decode()


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def job_processes(state_file: str, session: int) -> list[int]:
    """Every living process of a job: those of its session, and those that left it (the marked environment)."""
    mark = f"GPT_TUNE_JOB_STATE={state_file}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        fields = _stat(int(entry.name))
        if fields is None or fields[0] in (b"Z", b"X"):
            continue
        if int(fields[3]) == session or mark in _environment(entry):
            found.append(int(entry.name))
    return found


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def kill_job(state_file: str, session: int, grace: float) -> None:
    """End all of a job's processes: TERM, and KILL for what is left after `grace` seconds."""
    deadline = time.monotonic() + grace
    asked: set[int] = set()
    while left := job_processes(state_file, session):
        late = time.monotonic() > deadline
        for pid in left:
            if late or pid not in asked:
                asked.add(pid)
                _signal(pid, signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(0.02)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def write_json(path: str, data: Mapping[str, object]) -> None:
    """Create or replace a private file whole."""
    temporary = f"{path}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        json.dump(data, stream)
    os.replace(temporary, path)  # noqa: PTH105


def main(record_path: str) -> int:
    """Start the job and return once it runs; a detached child stays with it."""
    record: dict[str, str] = json.loads(Path(record_path).read_text())
    ready_read, ready_write = os.pipe()
    if os.fork() > 0:
        os.close(ready_write)
        return 0 if os.read(ready_read, 1) == b"1" else 1
    os.close(ready_read)
    os.setsid()
    _supervise(record, ready_write)
    os._exit(0)


def _supervise(record: dict[str, str], ready: int) -> None:
    cancelled: list[int] = []
    grace = float(record["grace_seconds"])
    child = 0

    def stop(number: int, _frame: FrameType | None) -> None:
        if not cancelled:
            cancelled.append(number)
            if os.fork() == 0:  # the killing waits and repeats; meanwhile this process goes on reaping
                kill_job(record["state_file"], child, grace)
                os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gate_read, gate_write = os.pipe()
    child = _start(record, gate_read, gate_write)
    write_json(record["state_file"], {**record, **_identity(child)})
    # A job whose state cannot be written never starts; neither does one that was given up on meanwhile.
    if time.time() - float(record["submitted_at"]) > START_WITHIN_SECONDS:
        os.unlink(record["state_file"])  # noqa: PTH108
        os._exit(1)
    os.write(gate_write, b"1")
    os.write(ready, b"1")
    os.close(ready)
    _let_go()
    status = _wait(child)
    kill_job(record["state_file"], child, grace)  # as in Slurm, nothing of a job outlives its script
    code = os.waitstatus_to_exitcode(status)
    outcome = {
        "exit_code": 128 - code if code < 0 else code,
        "cancelled": bool(cancelled),
        "ended_at": time.time(),
    }
    write_json(record["exit_file"], outcome)


def _identity(child: int) -> dict[str, object]:
    return {
        "pid": child,
        "pid_start": process_start(child),
        "runner": os.getpid(),
        "runner_start": process_start(os.getpid()),
        "boot_id": boot_id(),
        "host": socket.gethostname(),
        "started_at": time.time(),
    }


def _let_go() -> None:
    """Drop gpt-tune's streams and folder, so that nobody waits for them to close."""
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _start(record: dict[str, str], gate: int, gate_write: int) -> int:
    """Fork a process that, once `gate` opens, runs bash on the script with the streams of its #SBATCH lines."""
    child = os.fork()
    if child > 0:
        return child
    os.close(gate_write)  # so that the gate ends when the runner does
    if os.read(gate, 1) != b"1":
        os._exit(127)
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.chdir(record["run_dir"])
        mode = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if record["open_mode"] == "truncate" else os.O_APPEND)
        out = os.open(record["output"], mode, 0o600)
        err = out if record["error"] == record["output"] else os.open(record["error"], mode, 0o600)
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        os.closerange(3, 256)
        environment = {
            **os.environ,
            "GPT_TUNE_LOCAL": "1",
            "GPT_TUNE_JOB_ID": record["job_id"],
            "GPT_TUNE_JOB_STATE": record["state_file"],
        }
        os.execve(record["bash"], [record["bash"], record["script"]], environment)
    except OSError as error:
        os.write(2, f"gpt-tune: cannot start the job: {error}\n".encode())
    os._exit(127)


def _wait(child: int) -> int:
    """The wait status of the script, reaping whatever else ends before it."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
