"""Owns running a cluster's commands: by argument list, bounded in time, in a clean environment."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers.base import Unreachable

# Variables of these families change what a command prints or selects (SQUEUE_STATES, SINFO_PARTITION), or
# describe an allocation that gpt-tune happens to run in (SLURM_MEM_PER_NODE is even refused by sbatch).
DROPPED = ("SLURM_", "SBATCH_", "SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_", "SALLOC_", "SRUN_", "SLURMD_",
            "GPT_TUNE_JOB_", "GPT_TUNE_LOCAL")  # fmt: skip
# Seconds since the epoch: Slurm's own format is local time without a zone.
READING = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command left. stdout is bytes: fixed-width columns count bytes, not characters."""

    returncode: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def words(self) -> str:
        """The command's own complaint: stderr, or stdout where it complains there."""
        return self.stderr.strip() or self.text.strip()


class Commands(Protocol):
    """Where commands run: this machine, or the far end of ssh."""

    def run(
        self, argv: Sequence[str], timeout: float, job_variables: Mapping[str, str] | None = None
    ) -> Completed:
        """Unreachable on a timeout; SchedulerError when the command does not exist.

        job_variables: given when the command hands its environment on to a job, which then has these and the
        user's own language; None for commands whose words are read.
        """
        ...


class LocalCommands:
    """Commands on this machine. variables: added to each command's environment."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = dict(variables or {})

    def run(
        self, argv: Sequence[str], timeout: float, job_variables: Mapping[str, str] | None = None
    ) -> Completed:
        environment = clean_environment(os.environ)
        environment.update(READING if job_variables is None else job_variables)
        environment.update(self._variables)
        try:
            done = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                env=environment,
                check=False,
            )
        except FileNotFoundError as error:
            raise SchedulerError(
                f"The command {argv[0]!r} is not installed here.",
                "Run gpt-tune on a login node of the cluster, or use the local backend.",
            ) from error
        except PermissionError as error:
            raise SchedulerError(
                f"You may not run {argv[0]!r} here.", "Ask the cluster's support."
            ) from error
        except OSError as error:  # argument list too long, no memory to fork
            raise SchedulerError(f"Cannot run {argv[0]}: {error.strerror}.", "Try again later.") from error
        except subprocess.TimeoutExpired as error:
            raise Unreachable(
                f"{argv[0]} gave no answer within {timeout:g} s.",
                "The Slurm controller is slow or down: try again in a minute.",
            ) from error
        return Completed(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


def clean_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """`variables` without those that bend output or describe another job."""
    return {k: v for k, v in variables.items() if k in KEPT or not k.startswith(DROPPED)}


def user_name() -> str:
    """This process's user as the cluster knows them: by the uid, since LOGNAME may say anything."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container without a passwd entry
        return str(os.getuid())
