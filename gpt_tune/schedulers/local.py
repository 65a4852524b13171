"""Owns running jobs on this machine: the same job script, run by bash, detached from gpt-tune."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpt_tune import resources
from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.schedulers import local_machine, local_runner, log_patterns, sbatch_lines, slurm_words
from gpt_tune.schedulers.base import (
    ENDED,
    Cluster,
    Files,
    JobStatus,
    SignalTarget,
    State,
    SubmitRequest,
    SubmitUnknown,
)
from gpt_tune.schedulers.commands import Commands, LocalCommands, clean_environment, user_name
from gpt_tune.schedulers.local_files import LocalFiles

_START_SECONDS = 20.0
_NEVER_STARTED_SECONDS = 2 * local_runner.START_WITHIN_SECONDS  # its runner would not start it any more
_CANCEL_WAIT_SECONDS = 2.0  # most jobs end at once; those that do not are ended by their runner


class Local:
    """Jobs of this machine. Each has a record in the state folder, and its state in its run folder."""

    kind = "local"
    cluster = local_machine.NAME

    def __init__(
        self, commands: Commands | None = None, grace_seconds: float = local_runner.GRACE_SECONDS
    ) -> None:
        """grace_seconds: what a cancelled job has between TERM and KILL."""
        self.grace_seconds = grace_seconds
        self.commands: Commands = commands or LocalCommands()
        self.files: Files = LocalFiles()
        self.calls = 0  # there is no controller to spare

    def discover(self) -> Cluster:
        return local_machine.discover(self.commands)

    def check_reachable(self) -> None:
        if shutil.which("bash") is None:
            raise SchedulerError("bash is not installed here.", "Local jobs need it: install bash.")

    def running_since(self) -> str | None:
        return None

    def still_submitting(self, run_dir: str) -> bool:
        return False

    def one(self, job_id: str) -> JobStatus | None:
        return self.statuses([job_id]).get(job_id)

    def history(self, job_ids: Sequence[str], since: str) -> dict[str, JobStatus]:
        return {}

    # -- submit -----------------------------------------------------------------------------------
    def submit(self, request: SubmitRequest) -> str:
        self.check_reachable()
        if self.files.size(request.script) is None:
            raise UserError(f"The job script {request.script} does not exist.", "Render the job again.")
        record_file = _new_record_file()
        job_id = record_file.stem
        record = _record(job_id, request, self.grace_seconds)
        _write(record_file, record)
        try:
            self._launch(record_file, request)
        except SubmitUnknown:
            raise
        except (SchedulerError, OSError):
            record_file.unlink(missing_ok=True)
            raise
        return job_id

    def _launch(self, record_file: Path, request: SubmitRequest) -> None:
        runner = [sys.executable, "-I", "-S", local_runner.__file__, str(record_file)]
        try:
            done = subprocess.run(
                runner,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                # Without any allocation's variables, by which the script tells Slurm from local.
                env={**clean_environment(os.environ), **request.environment},
                timeout=_START_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SchedulerError(
                f"The job did not start within {_START_SECONDS:g} s.",
                "This machine is overloaded: try again.",
            ) from error
        if done.returncode != 0:
            words = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise SchedulerError(
                f"The job could not be started: {words[-1] if words else 'its runner failed'}.",
                "Check that the run folder is writable.",
            )

    # -- state ------------------------------------------------------------------------------------
    def statuses(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        found = {}
        for job_id in job_ids:
            record = _read(_records() / f"{job_id}.json")
            if record is not None:
                found[job_id] = _status(record)
        return found

    def my_jobs(self) -> list[JobStatus]:
        records = [_read(p) for p in _records().glob("local-*.json")]
        return [_status(r) for r in sorted(filter(None, records), key=lambda r: float(r["submitted_at"]))]

    def cancel(self, job_id: str) -> None:
        record = _record_of(job_id)
        if _status(record).state in ENDED:
            return
        state = _state_here(record)
        if _is_alive(state, "runner"):
            os.kill(state["runner"], signal.SIGTERM)
        elif state["boot_id"] == local_runner.boot_id():
            _end_without_runner(state)
        deadline = time.monotonic() + _CANCEL_WAIT_SECONDS
        while _read(Path(record["exit_file"])) is None and time.monotonic() < deadline:
            time.sleep(0.02)

    def hold(self, job_id: str) -> None:
        _record_of(job_id)
        raise _no_queue("held", job_id)

    def release(self, job_id: str) -> None:
        if _status(_record_of(job_id)).state in ENDED:
            raise SchedulerError(f"{job_id} has ended.", f"Start it again: gpt-tune resubmit {job_id}")

    def requeue(self, job_id: str) -> None:
        _record_of(job_id)
        raise _no_queue("requeued", job_id)

    def signal(self, job_id: str, name: str, target: SignalTarget = "script") -> None:
        record = _record_of(job_id)
        state = _state_here(record) if _status(record).state not in ENDED else None
        if state is None or not _is_alive(state, "pid"):
            raise SchedulerError(f"{job_id} does not run.", "Only a running job takes signals.")
        number = signal.Signals[f"SIG{name}"]
        everyone = local_runner.job_processes(record["state_file"], state["pid"])
        for pid in everyone if target == "all" else [state["pid"]]:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(pid, number)


def _no_queue(what: str, job_id: str) -> SchedulerError:
    return SchedulerError(
        f"{job_id} is a job of this machine, which has no queue: it cannot be {what}.",
        f"Cancel it (gpt-tune cancel {job_id}), and start it again with gpt-tune resubmit {job_id}.",
    )


def _record_of(job_id: str) -> dict[str, Any]:
    record = _read(_records() / f"{job_id}.json")
    if record is None:
        raise SchedulerError(f"There is no local job {job_id}.", "`gpt-tune jobs` lists them.")
    return record


def _state_here(record: dict[str, Any]) -> dict[str, Any]:
    """The state file of a job that runs on this machine."""
    state = _read(Path(record["state_file"]))
    job_id = record["job_id"]
    if state is None:
        raise SchedulerError(f"{job_id} is just starting.", "Try again in a moment.")
    if state["host"] != socket.gethostname():
        raise SchedulerError(f"{job_id} runs on {state['host']}, not here.", f"Do it on {state['host']}.")
    return state


def _end_without_runner(state: dict[str, Any]) -> None:
    """Cancel a job whose runner was killed."""
    session = state["pid"] if _is_alive(state, "pid") else -1
    local_runner.kill_job(state["state_file"], session, float(state["grace_seconds"]))
    outcome = {"exit_code": None, "cancelled": True, "ended_at": time.time()}
    local_runner.write_json(state["exit_file"], outcome)


def _status(record: dict[str, Any]) -> JobStatus:
    state_file = _read(Path(record["state_file"]))
    state, reason, code, ended = _state(record, state_file)
    return JobStatus(
        job_id=record["job_id"],
        name=record["name"],
        state=state,
        reason=reason,
        nodes=1,
        node_list=(state_file or {}).get("host", ""),
        partition=local_machine.NAME,
        submitted_at=slurm_words.rfc3339(record["submitted_at"]),
        started_at=slurm_words.rfc3339(state_file["started_at"]) if state_file else None,
        ended_at=slurm_words.rfc3339(ended) if ended else None,
        exit_code=code,
        comment=record["token"],
        log_paths=tuple(dict.fromkeys([record["output"], record["error"]])),
        work_dir=record["run_dir"],
    )


def _state(
    record: dict[str, Any], state: dict[str, Any] | None
) -> tuple[State, str, int | None, float | None]:
    """State, reason, exit code and end (seconds since the epoch) of a job."""
    if state is None:
        if time.time() - float(record["submitted_at"]) < _NEVER_STARTED_SECONDS:
            return "PENDING", "starting", None, None
        return "FAILED", "it never started, or its run folder is gone", None, None
    outcome = _read(Path(record["exit_file"]))
    if outcome is None:
        if state["host"] != socket.gethostname():
            return "UNKNOWN", f"runs on {state['host']}: ask there", None, None
        if state["boot_id"] != local_runner.boot_id():
            return "FAILED", "the machine was restarted while it ran", None, None
        if _is_alive(state, "pid"):
            return "RUNNING", "", None, None
        if _is_alive(state, "runner"):
            return "COMPLETING", "", None, None
        outcome = _read(Path(record["exit_file"])) or _own_exit_code(record["run_dir"])
    if outcome is None:
        return "FAILED", "its processes vanished without an exit code (killed from outside)", None, None
    code = outcome["exit_code"]
    if outcome["cancelled"]:
        return "CANCELLED", "", None, outcome["ended_at"]
    if code == 0:
        return "COMPLETED", "", 0, outcome["ended_at"]
    return "FAILED", f"exit code {code}", code, outcome["ended_at"]


def _own_exit_code(run_dir: str) -> dict[str, Any] | None:
    """What the job script itself left, when its runner was killed."""
    path = Path(run_dir) / "exit_code"
    try:
        return {
            "exit_code": int(path.read_text().split()[0]),
            "cancelled": False,
            "ended_at": path.stat().st_mtime,
        }
    except (OSError, ValueError, IndexError):
        return None


def _is_alive(state: dict[str, Any], who: str) -> bool:
    """Whether the `pid` or `runner` of a state file is that very process, not a later one with its number."""
    start = local_runner.process_start(int(state[who]))
    return start is not None and start == state[f"{who}_start"] and state["boot_id"] == local_runner.boot_id()


# -- records --------------------------------------------------------------------------------------
def _records() -> Path:
    return resources.state_dir() / "local"


def _new_record_file() -> Path:
    """A new, empty `local-N.json`. Creating it exclusively makes N unique among all processes."""
    folder = _records()
    LocalFiles().make_dir(str(folder))
    numbers = [int(p.stem[6:]) for p in folder.glob("local-*.json") if p.stem[6:].isdigit()]
    number = max(numbers, default=0) + 1
    while True:
        path = folder / f"local-{number}.json"
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            return path
        except FileExistsError:
            number += 1
        except OSError as error:
            raise UserError(f"Cannot write {path}: {error.strerror}.", "Free some space there.") from error


def _record(job_id: str, request: SubmitRequest, grace_seconds: float) -> dict[str, Any]:
    options = sbatch_lines.options(LocalFiles().read(request.script))
    name = options.get("job-name") or request.name
    known = log_patterns.values(job_id, name=name, user=user_name(), host=socket.gethostname().split(".")[0])
    output = options.get("output") or "slurm-%j.out"
    error = options.get("error") or output
    run_dir = Path(request.run_dir)
    return {
        "job_id": job_id,
        "name": name,
        "token": request.token,
        "run_dir": str(run_dir),
        "script": request.script,
        "output": str(run_dir / log_patterns.expand(output, known)),
        "error": str(run_dir / log_patterns.expand(error, known)),
        "open_mode": options.get("open-mode", "append"),
        "state_file": str(run_dir / f".{job_id}.json"),
        "exit_file": str(run_dir / f".{job_id}.exit.json"),
        "grace_seconds": grace_seconds,
        "bash": shutil.which("bash") or "/bin/bash",
        "submitted_at": time.time(),
    }


def _write(path: Path, data: dict[str, Any]) -> None:
    try:
        local_runner.write_json(str(path), data)
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror}.", "Free some space there.") from error


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return data


def supervisor_of(job_id: str) -> int | None:
    """The process that stands by a running job of this machine and ends with it; None when it does not run here."""
    record = _read(_records() / f"{job_id}.json")
    state = _read(Path(record["state_file"])) if record is not None else None
    here = state is not None and state["host"] == socket.gethostname() and _is_alive(state, "runner")
    return int(state["runner"]) if here and state is not None else None
