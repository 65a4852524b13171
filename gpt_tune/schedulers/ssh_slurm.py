"""Owns a Slurm cluster behind a login node: its commands and files through one ssh connection."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers import refusals, slurm_words, ssh
from gpt_tune.schedulers.base import Cluster, SubmitRequest, SubmitUnknown, Unreachable
from gpt_tune.schedulers.commands import DROPPED, KEPT, READING, Completed
from gpt_tune.schedulers.remote_files import RemoteFiles
from gpt_tune.schedulers.slurm_cli import SlurmCli
from gpt_tune.schedulers.ssh import Connection, Target

_NOT_FOUND = 127
_NO_PERMISSION = 126
_FIRST_SECONDS = 60.0  # a login shell may load many modules


@dataclass(frozen=True, slots=True)
class Account:
    """Who and where we are over there. variables: of the login shell, as far as Slurm's commands need them."""

    user: str
    home: str
    host: str
    variables: Mapping[str, str]

    @property
    def exported(self) -> dict[str, str]:
        """What a command there needs that sshd's bare environment lacks."""
        wanted = ("PATH", *KEPT)
        return {k: v for k, v in self.variables.items() if k in wanted}


class SshCommands:
    """Commands of the login node, in the environment its login shell sets up."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._account: Account | None = None

    @property
    def account(self) -> Account:
        """Asked once: non-interactive shells lack what a login shell's profile adds (PATH, SLURM_CONF)."""
        if self._account is None:
            script = 'id -un; printf "%s\\n" "$HOME"; hostname; "${SHELL:-/bin/sh}" -lc "env -0" </dev/null 2>/dev/null'
            done = self.connection.run(script, timeout=_FIRST_SECONDS)
            self._account = _account(done)
        return self._account

    def run(
        self, argv: Sequence[str], timeout: float, job_variables: Mapping[str, str] | None = None
    ) -> Completed:
        """As Commands.run. With job_variables the command is sent once and never again."""
        once = job_variables is not None
        script = "\n".join([_environment(self.account, job_variables), f"exec {ssh.quoted(argv)}"])
        done = self.connection.run(
            script, timeout=timeout, again=not once, mark=_chdir_of(argv) if once else ""
        )
        if done.returncode == _NOT_FOUND and not done.stdout:
            raise SchedulerError(
                f"The command {argv[0]!r} is not on the PATH of {self.connection.target.host}.",
                "Let your login shell there (~/.bash_profile) set the PATH, or name another login node in site.ssh.",
            )
        if done.returncode == _NO_PERMISSION:
            raise SchedulerError(
                f"You may not run {argv[0]!r} on {self.connection.target.host}.", "Ask the cluster's support."
            )
        return done


class SshSlurm(SlurmCli):
    """One Slurm cluster through the ssh of this machine."""

    kind = "ssh"

    def __init__(self, name: str, target: Target) -> None:
        """name: what the cluster is called here (its site's name)."""
        self.connection = Connection(target)
        self._ssh = SshCommands(self.connection)
        super().__init__(self._ssh, RemoteFiles(self.connection))
        self._name = name

    @property
    def account(self) -> Account:
        """The user over there."""
        return self._ssh.account

    def discover(self) -> Cluster:
        found = super().discover()
        note = f"reached by ssh through {self.connection.target.host}"
        return replace(found, name=self._name, notes=(note, *found.notes))

    def submit(self, request: SubmitRequest) -> str:
        self._ssh.account  # noqa: B018  trouble with the connection shows before anything is sent
        try:
            return super().submit(request)
        except SubmitUnknown as error:
            if isinstance(error.__cause__, ssh.NotConnected):  # nothing was sent
                raise error.__cause__ from error
            if isinstance(error.__cause__, Unreachable):
                raise SubmitUnknown(error.__cause__.message, error.hint) from error
            raise

    def still_submitting(self, run_dir: str) -> bool:
        """An ssh of this machine on its way, or sbatch over there, which outlives the connection."""
        if ssh.in_flight(run_dir):
            return True
        done = self.connection.run('ps -ww -u "$(id -u)" -o args=')
        if done.returncode:
            raise refusals.failed("ps", done.words)
        return any(_is_sbatch_for(line, run_dir) for line in done.text.splitlines())

    def _configured_name(self) -> str | None:
        return self._name

    def _user(self) -> str:
        return self.account.user

    def _own_variables(self) -> Mapping[str, str]:
        return self.account.variables

    def _sacct_time(self, stamp: str) -> str:
        """In the login node's time zone, which need not be ours."""
        done = self.connection.run(f"date -d @{int(slurm_words.epoch(stamp))} +%Y-%m-%dT%H:%M:%S")
        return done.text.strip() or super()._sacct_time(stamp)


def guess_run_root(scheduler: SshSlurm) -> str:
    """A folder for runs over there: scratch space the login shell names, else the home."""
    variables = scheduler.account.variables
    for name in ("SCRATCH", "PSCRATCH", "WORK", "SCRATCHDIR", "WORKDIR"):
        if variables.get(name, "").startswith("/"):
            return posixpath.join(variables[name], "gpt-tune")
    return posixpath.join(scheduler.account.home, "gpt-tune-runs")


def _account(done: Completed) -> Account:
    user, home, host, rest = (done.stdout.split(b"\n", 3) + [b""] * 4)[:4]
    entries = [e.decode("utf-8", "surrogateescape") for e in rest.split(b"\0")]
    # What a profile prints stands before the first entry, on lines of its own.
    entries[0] = entries[0].rpartition("\n")[2]
    variables = {name: value for name, equals, value in (e.partition("=") for e in entries) if equals}
    words = [w.decode("utf-8", "replace") for w in (user, home, host)]
    return Account(words[0], words[1], words[2], variables)


def _environment(account: Account, job_variables: Mapping[str, str] | None) -> str:
    """Shell lines that set the environment as LocalCommands does: nothing that bends output or describes a job."""
    families = "|".join(f"{prefix}*" for prefix in DROPPED)
    kept = "|".join(KEPT)
    lines = [
        'for name in $(env | sed -n "s/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p"); do',
        f'  case $name in {kept}) ;; {families}) unset "$name" ;; esac',
        "done",
    ]
    given = {**account.exported, **(READING if job_variables is None else job_variables)}
    return "\n".join([*lines, *(f"export {k}={quote(v)}" for k, v in given.items())])


def _chdir_of(argv: Sequence[str]) -> str:
    return next((w.removeprefix("--chdir=") for w in argv if w.startswith("--chdir=")), "")


def _is_sbatch_for(line: str, run_dir: str) -> bool:
    words = line.split()
    return bool(words) and posixpath.basename(words[0]) == "sbatch" and f"--chdir={run_dir}" in line
