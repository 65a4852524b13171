"""Owns talking to Slurm through its own commands."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers import (
    refusals,
    sbatch_lines,
    slurm_changes,
    slurm_conf,
    slurm_jobs,
    slurm_nodes,
    slurm_shown,
    slurm_words,
)
from gpt_tune.schedulers.base import (
    Cluster,
    Files,
    JobStatus,
    Partition,
    SignalTarget,
    SubmitRequest,
    SubmitUnknown,
    Unreachable,
)
from gpt_tune.schedulers.commands import Commands, Completed, LocalCommands, user_name
from gpt_tune.schedulers.local_files import LocalFiles

# Slurm's commands try for about MessageTimeout (10 s) when the controller is away; large clusters take
# seconds for a full sinfo.
_PING_SECONDS = 15.0
_READ_SECONDS = 30.0
_SUBMIT_SECONDS = 60.0
_SACCT_SECONDS = 20.0
_TIMED_OUT = 124  # coreutils' timeout says so
_JOB_ID = re.compile(r"\d+([_+]\d+)?")
_DENIED = re.compile(r"(access|permission) denied|not permitted|unauthorized", re.IGNORECASE)
_NO_ACCOUNTING = re.compile(r"accounting storage is disabled|slurm accounting", re.IGNORECASE)
_AS_OF = "Configuration data as of"
_FORGOTTEN = re.compile(r"invalid job id", re.IGNORECASE)
_ENDED_ALREADY = re.compile(r"already completing or completed|invalid job id", re.IGNORECASE)


class NotConfigured(Unreachable):
    """Slurm's commands here are pointed at no cluster by the user's own settings."""


class SlurmCli:
    """One Slurm cluster, as the commands on this machine's PATH see it."""

    kind = "slurm_cli"

    def __init__(self, commands: Commands | None = None, files: Files | None = None) -> None:
        self.commands: Commands = commands or LocalCommands()
        self.files: Files = files or LocalFiles()
        self.calls = 0
        self._configuration: dict[str, str] = {}
        self._name = ""
        self._federated = False
        self._is_configured = False  # looked at once: behind ssh each look is a round trip

    # -- what the cluster is ----------------------------------------------------------------------
    @property
    def cluster(self) -> str:
        """Its ClusterName: from the configuration file where there is one, so that no controller is needed."""
        if not self._name:
            self._name = self._configured_name() or self._asked_name()
        return self._name

    # What differs where the commands run on another machine.
    def _configured_name(self) -> str | None:
        return slurm_conf.cluster_name()

    def _user(self) -> str:
        return user_name()

    def _own_variables(self) -> Mapping[str, str]:
        """The variables that the user's own defaults for sbatch stand in."""
        return os.environ

    def _sacct_time(self, stamp: str) -> str:
        return slurm_words.local_iso(stamp)

    def _asked_name(self) -> str:
        self.check_reachable()
        return self.configuration()["ClusterName"]

    def configuration(self) -> dict[str, str]:
        """`scontrol show config`, asked once."""
        if not self._configuration:
            self._configuration = self._show_config()
        return self._configuration

    def _show_config(self) -> dict[str, str]:
        self.check_configured()
        self.calls += 1
        done = self.commands.run(["scontrol", "show", "config"], _READ_SECONDS)
        pairs = (line.split("=", 1) for line in done.text.splitlines() if "=" in line)
        found = {key.strip(): value.strip() for key, value in pairs}
        if match := re.match(rf"{_AS_OF} (\S+)", done.text):
            found[_AS_OF] = match[1]  # the controller's clock
        # Its exit code also speaks of the ping at its end, which may fail alone.
        if "ClusterName" not in found and _DENIED.search(done.words):
            return self._without_configuration(done.words)
        if "ClusterName" not in found:
            raise refusals.failed("scontrol", done.stderr or "it printed no configuration")
        return found

    def _without_configuration(self, words: str) -> dict[str, str]:
        """What is known without it: some sites show it to administrators only. Accounting is then tried."""
        name = self._name or self._configured_name()
        if not name:
            raise refusals.failed("scontrol", words)
        version = self.commands.run(["sinfo", "--version"], _READ_SECONDS).text
        return {"ClusterName": name, "SLURM_VERSION": version.strip().rpartition(" ")[2]}

    def check_configured(self) -> None:
        """NotConfigured when $SLURM_CONF names no slurm.conf: Slurm's commands would wait a minute for the file."""
        if self._is_configured:
            return
        path = self._own_variables().get("SLURM_CONF", "")
        problem = slurm_conf.problem(path, self.files)
        self._is_configured = not problem
        if problem:
            raise NotConfigured(
                f"SLURM_CONF is {path}, which {problem}.",
                "Set it to the cluster's slurm.conf, or unset it.",
            )

    def check_reachable(self, within_seconds: float = 0.0) -> None:
        """Unreachable unless the controller answers now. within_seconds: less than a slow one may need."""
        self.check_configured()
        # Slurm's other commands wait ~10 s for a controller that is down; ping answers at once.
        self.calls += 1
        done = self.commands.run(["scontrol", "ping"], within_seconds or _PING_SECONDS)
        if re.search(r"\bis UP\b", done.text):
            return
        if "munge" in done.stderr.lower():  # ping then says that the controller is down
            raise refusals.no_munge()
        if "DOWN" in done.text:
            raise refusals.unreachable()
        if refusals.is_lost(done.words):
            raise refusals.unreachable(done.words)
        raise SchedulerError(
            f"Slurm does not work on this machine: {refusals.sentence(done.words)}.",
            "Run gpt-tune on a login node, or set SLURM_CONF to the cluster's slurm.conf.",
        )

    def discover(self) -> Cluster:
        self.check_reachable()
        with ThreadPoolExecutor(1) as pool:  # side by side: on a large cluster sinfo takes its time
            table = pool.submit(self._read, slurm_nodes.ARGUMENTS)
            configuration = self.configuration()
            partitions, notes = slurm_nodes.parse(table.result().stdout)
        return Cluster(
            name=configuration["ClusterName"],
            scheduler="slurm",
            version=configuration.get("SLURM_VERSION", ""),
            partitions=partitions,
            notes=notes,
        )

    def partitions(self) -> tuple[Partition, ...]:
        """What `discover` says of them, of a controller that has just answered: one call."""
        return slurm_nodes.parse(self._read(slurm_nodes.ARGUMENTS).stdout)[0]

    def running_since(self) -> str | None:
        """By this machine's clock, which may be minutes off the controller's."""
        shown = self._show_config()
        since, now = (slurm_words.stamp(shown.get(key, "")) for key in ("BOOT_TIME", _AS_OF))
        if since is None or now is None:
            return since
        return slurm_words.rfc3339(time.time() - (slurm_words.epoch(now) - slurm_words.epoch(since)))

    # -- jobs -------------------------------------------------------------------------------------
    def submit(self, request: SubmitRequest) -> str:
        self.calls += 1
        try:
            done = self.commands.run(
                _sbatch(request, self.files),
                _SUBMIT_SECONDS,
                job_environment(request, self.files, self._own_variables()),
            )
        except Unreachable as error:
            raise SubmitUnknown(
                f"sbatch gave no answer within {_SUBMIT_SECONDS:g} s.",
                "The job may exist: do not submit again before `gpt-tune jobs` has found out.",
            ) from error
        if _was_cut_off(done):
            raise SubmitUnknown(
                f"sbatch ended before it said what became of the job (exit code {done.returncode}).",
                "The job may exist: do not submit again before `gpt-tune jobs` has found out.",
            )
        if done.returncode != 0:
            raise refusals.refused(done.words)
        for line in reversed(done.text.splitlines()):
            if match := re.fullmatch(r"(\d+)(;.*)?", line.strip()):
                return match.group(1)
        raise SubmitUnknown(
            f"sbatch answered {done.text.strip()[:80]!r}, which holds no job id.",
            "The job may exist: do not submit again before `gpt-tune jobs` has found out.",
        )

    def statuses(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        # One id that is none of Slurm's makes squeue refuse the whole list.
        wanted = {i for i in job_ids if _JOB_ID.fullmatch(i)}
        if not wanted:
            return {}
        return slurm_jobs.by_id(self._squeue(sorted(wanted)), wanted)

    def one(self, job_id: str) -> JobStatus | None:
        if self._federated or not _JOB_ID.fullmatch(job_id):
            return self.statuses([job_id]).get(job_id)
        self.calls += 1
        done = self.commands.run(slurm_shown.arguments(job_id), _READ_SECONDS)
        if done.returncode != 0 and not _FORGOTTEN.search(done.words):
            raise refusals.failed("scontrol", done.words)
        return slurm_jobs.by_id(slurm_shown.statuses(done.text), [job_id]).get(job_id)

    def my_jobs(self) -> list[JobStatus]:
        return self._squeue(())

    def _squeue(self, job_ids: Sequence[str], by_task: bool = False) -> list[JobStatus]:
        self.calls += 1
        argv = slurm_jobs.squeue_arguments(self._user(), job_ids, self._federated, by_task)
        done = self.commands.run(argv, _READ_SECONDS)
        if not self._federated and slurm_jobs.is_elsewhere(done.stdout):
            self._federated = True
            return self._squeue(job_ids, by_task)
        # Asked for one job only, squeue fails when Slurm has forgotten it.
        if done.returncode != 0 and not _FORGOTTEN.search(done.words):
            raise refusals.failed("squeue", done.words)
        return slurm_jobs.parse_squeue(done.stdout)

    def history(self, job_ids: Sequence[str], since: str) -> dict[str, JobStatus]:
        if not self.has_accounting():
            return {}
        self.calls += 1
        done = self.commands.run(
            slurm_jobs.sacct_arguments(self._user(), sorted(job_ids), self._sacct_time(since)),
            _SACCT_SECONDS,
        )
        if done.returncode != 0 and _NO_ACCOUNTING.search(done.words):
            return {}
        if done.returncode != 0 and refusals.is_lost(done.words):
            raise Unreachable(
                f"Slurm's accounting (slurmdbd) does not answer: {refusals.sentence(done.words)}.",
                "Jobs go on without it; how forgotten ones ended is known when it is back.",
            )
        if done.returncode != 0:
            raise refusals.failed("sacct", done.words)
        found = slurm_jobs.parse_sacct(done.text)
        return slurm_jobs.by_id(found, job_ids) if job_ids else {s.job_id: s for s in found}

    def has_accounting(self) -> bool:
        """Whether to ask sacct: where the configuration is not shown it says so itself."""
        return "slurmdbd" in self.configuration().get("AccountingStorageType", "slurmdbd")

    def still_submitting(self, run_dir: str) -> bool:
        """sbatch outlives a killed gpt-tune, and tries on for a while when the controller is away."""
        return any(_is_sbatch_for(p, run_dir) for p in Path("/proc").iterdir() if p.name.isdigit())

    def cancel(self, job_id: str) -> None:
        self.check_reachable()
        self.calls += 1
        done = self.commands.run(["scancel", slurm_changes.named(job_id)], _READ_SECONDS)
        if done.returncode != 0 and not _ENDED_ALREADY.search(done.words):
            raise refusals.failed("scancel", done.words)

    def _parts(self, job_id: str) -> list[JobStatus]:
        """The whole job that this is (of): one status, or one for each task of its array or part of it."""
        return self._squeue([slurm_jobs.base_of(job_id)], by_task=True)

    def hold(self, job_id: str) -> None:
        # Slurm would take it for a running job, too, and keep that from starting after a requeue.
        self._hold(slurm_changes.waiting(job_id, self._parts(job_id)))

    def _hold(self, job_id: str) -> None:
        # uhold, not hold: what an administrator holds its owner could not release.
        self._change(["scontrol", "uhold", job_id])

    def release(self, job_id: str) -> None:
        self._change(["scontrol", "release", slurm_changes.named(job_id)])

    def requeue(self, job_id: str) -> None:
        slurm_changes.check_whole(job_id)
        # Of an array the running tasks go back; of those that wait Slurm complains that they do.
        self._change(["scontrol", "requeue", slurm_changes.named(job_id)], done=r": No error")

    def signal(self, job_id: str, name: str, target: SignalTarget = "script") -> None:
        # scancel waits long for a job between two states, and says nothing of one that has ended.
        parts = self._parts(job_id)
        slurm_changes.check_running(job_id, parts)
        if any("_" in s.job_id for s in parts):
            self._signal_tasks(job_id, name, target)
        else:
            self._signal(job_id, name, target)

    def _signal(self, job_id: str, name: str, target: SignalTarget) -> None:
        self._change(slurm_changes.scancel(job_id, name, target))

    def _signal_tasks(self, job_id: str, name: str, target: SignalTarget) -> None:
        """Of an array. While some of its tasks wait, Slurm takes the signal and says "try again later"; scancel then
        sends it again and again, 5 s after the first time."""
        argv = [
            "timeout",
            f"{slurm_changes.BEFORE_SCANCEL_REPEATS:g}",
            *slurm_changes.scancel(job_id, name, target, "--verbose", "--ctld"),
        ]
        self._change(argv, done=r"transitional state|can ?not be altered now")

    def _change(self, argv: Sequence[str], done: str = "") -> None:
        """Change a job. SchedulerError with Slurm's own words when it would not.

        done: a regular expression on these for what is no failure.
        """
        self.check_reachable()
        self.calls += 1
        ended = self.commands.run(argv, _READ_SECONDS)
        if ended.returncode == 0 or (done and re.search(done, ended.words)):
            return
        if argv[0] == "timeout" and ended.returncode == _TIMED_OUT:
            raise Unreachable(
                f"{argv[2]} gave no answer within {argv[1]} s.",
                "The Slurm controller is slow or down: look at what it did before you try again.",
            )
        raise refusals.failed(argv[0], ended.words)

    def _read(self, argv: Sequence[str]) -> Completed:
        self.calls += 1
        done = self.commands.run(argv, _READ_SECONDS)
        if done.returncode != 0:
            raise refusals.failed(argv[0], done.words)
        return done


def _sbatch(request: SubmitRequest, files: Files) -> list[str]:
    return [
        "sbatch", "--parsable", f"--comment={comment_of(request, files)}", f"--chdir={request.run_dir}",
        *request.extra_arguments, request.script,
    ]  # fmt: skip


def _was_cut_off(done: Completed) -> bool:
    """Whether sbatch was killed (by a signal, also as a shell tells it), or failed without a word."""
    killed = done.returncode < 0 or 128 < done.returncode <= 128 + 64
    return done.returncode != 0 and (killed or not done.words)


def comment_of(request: SubmitRequest, files: Files) -> str:
    """Some sites bill by the comment: the user's own words stay in front of the token."""
    own = sbatch_lines.options(files.read(request.script)).get("comment", "")
    return own if request.token in own else f"{own} {request.token}".strip()


def job_environment(request: SubmitRequest, files: Files, own: Mapping[str, str]) -> dict[str, str]:
    """The job's variables, and those SBATCH_* defaults of the user that the script leaves open.

    sbatch lets SBATCH_PARTITION win over the script's --partition, so what was planned would not be what runs.
    """
    set_by_script = sbatch_lines.options(files.read(request.script))
    defaults = {
        k: v for k, v in own.items()
        if k.startswith("SBATCH_") and sbatch_lines.option_of_variable(k) not in set_by_script
    }  # fmt: skip
    return {**defaults, **request.environment}


def _is_sbatch_for(process: Path, run_dir: str) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return Path(os.fsdecode(words[0])).name == "sbatch" and f"--chdir={run_dir}".encode() in words
