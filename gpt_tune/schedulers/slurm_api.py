"""Owns talking to Slurm through pyslurm, in a process of its own; Slurm's commands do what that cannot."""

from __future__ import annotations

import importlib.util
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers import hostlist, refusals, sbatch_lines, slurm_jobs, slurm_words
from gpt_tune.schedulers.base import (
    ENDED,
    Cluster,
    Files,
    JobStatus,
    SignalTarget,
    SubmitRequest,
    SubmitUnknown,
)
from gpt_tune.schedulers.commands import Commands, clean_environment
from gpt_tune.schedulers.slurm_api_process import Helper, HelperTrouble, Refused, Unsayable
from gpt_tune.schedulers.slurm_cli import SlurmCli, comment_of, job_environment

_PING_SECONDS = 15.0
_READ_SECONDS = 30.0
_SUBMIT_SECONDS = 60.0
_JOB_NUMBER = re.compile(r"\d+")
_ENDED_ALREADY = re.compile(r"already completing or completed|invalid job id", re.IGNORECASE)

# #SBATCH options that pyslurm's description says in full, and how. A script with any other goes to sbatch.
_ATTRIBUTES = {
    "job-name": "name", "output": "standard_output", "error": "standard_error", "open-mode": "log_files_open_mode",
    "nodes": "nodes", "ntasks": "ntasks", "ntasks-per-node": "ntasks_per_node", "cpus-per-task": "cpus_per_task",
    "gres": "gres_per_node", "partition": "partitions", "account": "account", "qos": "qos", "time": "time_limit",
    "exclude": "excluded_nodes", "constraint": "constraints", "signal": "signal", "array": "array",
    "dependency": "dependencies",
}  # fmt: skip
_FLAGS: dict[str, tuple[str, object]] = {
    "requeue": ("is_requeueable", True), "no-requeue": ("is_requeueable", False), "hold": ("priority", 0),
}  # fmt: skip
_OURS = frozenset({"comment", "chdir"})


def is_installed() -> bool:
    """Whether there is a pyslurm to try; cheap, imports nothing."""
    try:
        return importlib.util.find_spec("pyslurm") is not None
    except (ImportError, ValueError):
        return False


class SlurmApi(SlurmCli):
    """One Slurm cluster through pyslurm. fallback: why Slurm's commands are used instead, "" while they are not."""

    kind = "slurm_api"

    def __init__(self, commands: Commands | None = None, files: Files | None = None) -> None:
        super().__init__(commands, files)
        self._helper = Helper()
        self.fallback = ""

    def close(self) -> None:
        """End the helper process; it starts again when needed."""
        self._helper.close()

    # -- what the cluster is ----------------------------------------------------------------------
    def check_reachable(self, within_seconds: float = 0.0) -> None:
        self.check_configured()
        try:
            answer = self._ask("ping", within_seconds or _PING_SECONDS)
        except _UseCommands:
            return super().check_reachable(within_seconds)
        except Refused as error:
            raise refusals.failed("ping", error.words) from error
        if not answer["responding"]:
            raise refusals.unreachable()
        return None

    def discover(self) -> Cluster:
        """By sinfo: pyslurm shows all GPUs as free where accounting does not count them."""
        found = super().discover()
        return replace(found, notes=(*found.notes, *self._notes()))

    def _notes(self) -> tuple[str, ...]:
        if self.fallback:
            return (f"Slurm's commands are used: {self.fallback}.",)
        return (f"jobs go through pyslurm {self._helper.version}",) if self._helper.version else ()

    # -- jobs -------------------------------------------------------------------------------------
    def submit(self, request: SubmitRequest) -> str:
        described = self._description(request)
        if described is None:
            return super().submit(request)
        try:
            return str(self._ask("submit", _SUBMIT_SECONDS, description=described))
        except _UseCommands as error:
            if error.sent:
                raise SubmitUnknown(
                    f"{self.fallback}, during the submission.",
                    "The job may exist: do not submit again before `gpt-tune jobs` has found out.",
                ) from error
            return super().submit(request)
        except Unsayable:
            return super().submit(request)
        except Refused as error:
            raise refusals.refused(error.words) from error

    def _description(self, request: SubmitRequest) -> dict[str, Any] | None:
        """The script's #SBATCH lines in pyslurm's words; None when it must go to sbatch."""
        script = self.files.read(request.script)
        options = sbatch_lines.options(script)
        environment = job_environment(request, self.files, self._own_variables())
        # Defaults of the user's own (SBATCH_*) and arguments are sbatch's to understand.
        if request.extra_arguments or any(k.startswith("SBATCH_") for k in environment):
            return None
        description: dict[str, Any] = {
            "script": script.decode("utf-8", "surrogateescape"),
            "comment": comment_of(request, self.files),
            "working_directory": request.run_dir,
            "environment": {**clean_environment(os.environ), **environment},
        }
        for name, value in options.items():
            if name in _OURS:
                continue
            if name in _FLAGS:
                attribute, setting = _FLAGS[name]
                description[attribute] = setting
            elif name in _ATTRIBUTES and value:
                description[_ATTRIBUTES[name]] = _value(name, value)
            else:
                return None
        description.setdefault("name", posixpath.basename(request.script))
        if "ntasks_per_node" in description and "ntasks" not in description:
            # Alone it is refused ("node configuration is not available").
            nodes = str(description.get("nodes", 1))
            if not nodes.isdigit():
                return None
            description["ntasks"] = int(nodes) * int(description["ntasks_per_node"])
        try:
            description["script"].encode("utf-8")
        except UnicodeEncodeError:
            return None
        return description

    def statuses(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        wanted = {i for i in job_ids if re.fullmatch(r"\d+([_+]\d+)?", i)}
        if not wanted:
            return {}
        numbers = sorted({slurm_jobs.base_of(i) for i in wanted})
        if len(numbers) == 1:  # pyslurm asks for its steps, too; all jobs are one request
            return super().statuses(job_ids)
        try:
            answer = self._ask("jobs", _READ_SECONDS, ids=numbers)
        except _UseCommands:
            return super().statuses(job_ids)
        except Refused as error:
            raise refusals.failed("pyslurm", error.words) from error
        return slurm_jobs.by_id([s for j in answer for s in _statuses(j)], wanted)

    def my_jobs(self) -> list[JobStatus]:
        try:
            answer = self._ask("jobs", _READ_SECONDS, uid=os.getuid())
        except _UseCommands:
            return super().my_jobs()
        except Refused as error:
            raise refusals.failed("pyslurm", error.words) from error
        return [_status(j) for j in answer]

    def cancel(self, job_id: str) -> None:
        if not _JOB_NUMBER.fullmatch(job_id):  # a task of an array
            return super().cancel(job_id)
        try:
            self._ask("cancel", _READ_SECONDS, number=job_id)
        except _UseCommands:
            return super().cancel(job_id)
        except Refused as error:
            if not _ENDED_ALREADY.search(error.words):
                raise refusals.failed("cancel", error.words) from error
        return None

    # Hold, release and requeue stay with scontrol, which takes arrays and heterogeneous jobs as wholes: pyslurm 25.11.2
    # dies (SIGSEGV) at a hold that the job's owner may release himself, and releases one part only.
    def _signal(self, job_id: str, name: str, target: SignalTarget) -> None:
        steps = "all" if target == "all" else "batch"
        if not self._changed("signal", job_id, name=f"SIG{name}", steps=steps):
            super()._signal(job_id, name, target)

    def _changed(self, do: str, job_id: str, **more: Any) -> bool:
        """Change a job through pyslurm; False when Slurm's commands must do it (a task of an array, a fallback)."""
        if not _JOB_NUMBER.fullmatch(job_id):
            return False
        try:
            self._ask(do, _READ_SECONDS, number=job_id, **more)
        except _UseCommands:
            return False
        except Refused as error:
            raise refusals.failed(do, error.words) from error
        return True

    # -- the helper -------------------------------------------------------------------------------
    def _ask(self, do: str, timeout: float, **more: Any) -> Any:
        if self.fallback:
            raise _UseCommands(sent=False)
        self._fits()
        self.calls += 1
        try:
            return self._helper.ask(do, timeout, **more)
        except HelperTrouble as trouble:
            # Not tried again: a library that hangs or dies once costs its time limit each time.
            self.fallback = trouble.words
            raise _UseCommands(sent=trouble.sent) from trouble

    def _fits(self) -> None:
        """pyslurm speaks the protocol of one Slurm version; another one is not tried."""
        if self._helper.version:
            return
        try:
            self._helper.start()
        except HelperTrouble as trouble:
            self.fallback = trouble.words
            raise _UseCommands(sent=False) from trouble
        has = slurm_words.version_tuple(self.configuration().get("SLURM_VERSION", ""))[:2]
        ours = slurm_words.version_tuple(self._helper.version)[:2]
        if has != ours:
            self.close()
            self.fallback = (
                f"pyslurm {self._helper.version} is for Slurm {'.'.join(map(str, ours))}, and this is "
                f"{self.configuration().get('SLURM_VERSION', 'unknown')}"
            )
            raise _UseCommands(sent=False)


class _UseCommands(Exception):
    """pyslurm cannot answer. sent: whether it may have carried out the request all the same."""

    def __init__(self, sent: bool) -> None:
        super().__init__()
        self.sent = sent


def _value(name: str, value: str) -> str | int:
    """An option's value as pyslurm takes it."""
    if value.isdigit() and name in ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task"):
        return int(value)
    if name == "signal":  # it knows signals by their whole names
        return re.sub(r"(?<![A-Z])(?=(USR|TERM|INT|HUP|CONT|KILL|QUIT|ALRM))", "SIG", value.upper(), count=1)
    return value


def _statuses(job: Mapping[str, Any]) -> list[JobStatus]:
    """A job; tasks of an array that wait are one record and several jobs."""
    status = _status(job)
    if job["array_id"] is None or job["array_task"] is not None or not job.get("array_waiting"):
        return [status]
    tasks = hostlist.expand(f"[{job['array_waiting']}]")
    return [replace(status, job_id=f"{job['array_id']}_{task}") for task in tasks]


def _status(job: Mapping[str, Any]) -> JobStatus:
    state = slurm_words.job_state(job["state"])
    nodes = int(job["nodes"] or 0)
    per_node = sum(
        g.count for name, count in job["gres"].items() for g in slurm_words.gpus(f"{name}:{count}")
    )
    start = _stamp(job["start"])
    return JobStatus(
        job_id=_job_id(job),
        name=job["name"] or "",
        state=state,
        reason=slurm_jobs.reason_of(state, job["reason"] or ""),
        nodes=nodes,
        node_list=job["node_list"] or "",
        gpus=per_node * nodes if per_node else None,
        partition=job["partition"] or "",
        submitted_at=_stamp(job["submit"]),
        started_at=None if state == "PENDING" else start,
        ended_at=_stamp(job["end"]) if state in ENDED else None,
        exit_code=_exit_code(state, job),
        comment=job["comment"] or "",
        log_paths=(job["output"],) if (job["output"] or "").startswith("/") else (),
        work_dir=job["work_dir"] or "",
        expected_start=start if state == "PENDING" else None,
    )


def _job_id(job: Mapping[str, Any]) -> str:
    """As squeue names it: 4711, 4711_3, 4711_[4-9], 4711+1."""
    if job["array_id"] is None:
        whole = job.get("het_id")
        return str(job["id"]) if whole is None else f"{whole}+{job.get('het_offset') or 0}"
    if job["array_task"] is not None:
        return f"{job['array_id']}_{job['array_task']}"
    return f"{job['array_id']}_[{job.get('array_waiting') or ''}]"


def _stamp(seconds: int | None) -> str | None:
    return slurm_words.rfc3339(seconds) if isinstance(seconds, int) and seconds > 0 else None


def _exit_code(state: str, job: Mapping[str, Any]) -> int | None:
    return slurm_jobs.exit_code_of(state, f"{job['exit_code'] or 0}:{job['signal'] or 0}")


def way_words(scheduler: object) -> str:
    """How a cluster is reached, for the status bar: pyslurm, commands, ssh, or commands with the reason."""
    kind = getattr(scheduler, "kind", "")
    if isinstance(scheduler, SlurmApi):
        return f"commands ({scheduler.fallback})" if scheduler.fallback else "pyslurm"
    return {"slurm_cli": "commands", "ssh": "ssh", "local": "this machine"}.get(kind, kind)


def forced() -> SlurmApi:
    """As a setting asks: SchedulerError unless pyslurm can be imported."""
    scheduler = SlurmApi()
    try:
        scheduler._helper.start()
    except HelperTrouble as trouble:
        raise SchedulerError(
            f"{trouble.words}.", "Install pyslurm for this cluster's Slurm version, or set site.way=cli."
        ) from trouble
    return scheduler
