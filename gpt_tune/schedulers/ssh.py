"""Owns one connection to a login node through the user's own ssh: log in once, reuse it, say how to get it back."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import re
import secrets
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpt_tune import resources
from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers import login
from gpt_tune.schedulers.base import Unreachable
from gpt_tune.schedulers.commands import Completed

# A terminal's line to the login node is kept this long after its last use, so that a second factor is asked
# for once a session and not once a command.
PERSIST_SECONDS = 4 * 3600
CONNECT_SECONDS = 10
_LOGIN_SECONDS = 30.0
_NO_CONNECTION = 255  # ssh's own exit code; remote scripts never end with it
_LONGEST_SOCKET = 86  # sun_path holds 108 bytes, and ssh adds 17 while it makes the socket
_TARGET = re.compile(r"(ssh://)?[A-Za-z0-9_][A-Za-z0-9_.+@:%\[\]-]*/?")


class LoginNeeded(Unreachable):
    """The login node wants to ask the user something (password, second factor, host key)."""


class NotConnected(Unreachable):
    """There is no connection to the login node; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to log in: `user@host`, an alias of ~/.ssh/config, or `ssh://user@host:port`."""

    host: str

    def __post_init__(self) -> None:
        # A leading dash would be an option of ssh.
        if not _TARGET.fullmatch(self.host):
            raise SchedulerError(
                f"{self.host!r} is no login node.",
                "Set site.ssh to user@host, or to a Host of ~/.ssh/config.",
            )


def program() -> list[str]:
    """The ssh command: $GPT_TUNE_SSH with its options where that is set ("ssh -F file")."""
    return shlex.split(os.environ.get("GPT_TUNE_SSH", "")) or ["ssh"]


class Connection:
    """One login node. Every process of the user shares one authenticated line (ssh's ControlMaster).

    Options go on ssh's command line: ~/.ssh/config is read by ssh and never written.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._socket = _socket_folder() / _socket_name(target)
        self._lock = threading.Lock()

    # -- logging in --------------------------------------------------------------------------------
    def is_up(self) -> bool:
        """Whether an authenticated line exists; asks only ssh on this machine."""
        if not self._socket.exists():
            return False
        done = _ssh([*program(), "-S", str(self._socket), "-O", "check", self.target.host], timeout=5.0)
        return done.returncode == 0

    def ensure(self) -> None:
        """Have a line, asking the user where that is possible. LoginNeeded, or NotConnected with the reason."""
        if self.is_up():
            return
        with self._lock, self._among_processes():
            if self.is_up():
                return
            try:
                self._log_in_without_questions()
            except LoginNeeded:
                if login.handler is None or login.handler(self.login_command()) != 0 or not self.is_up():
                    raise

    def login_command(self) -> list[str]:
        """What logs in with questions; run it in a terminal. gpt-tune then uses that line."""
        return [*program(), *self._line_options("auto"), self.target.host, "true"]

    def login_words(self) -> str:
        """login_command as text to paste into a shell."""
        return shlex.join(self.login_command())

    def close(self) -> None:
        """End the line (for every process that uses it)."""
        _ssh([*program(), "-S", str(self._socket), "-O", "exit", self.target.host], timeout=5.0)

    def _log_in_without_questions(self) -> None:
        argv = [*program(), *self._line_options("auto"), "-o", "BatchMode=yes", "-o",
                "NumberOfPasswordPrompts=0", self.target.host, "true"]  # fmt: skip
        done = _ssh(argv, timeout=_LOGIN_SECONDS)
        if done.returncode != 0 or not self.is_up():
            raise self._explained(done.stderr)

    def _line_options(self, master: str) -> list[str]:
        options = {
            "ControlMaster": master,
            "ControlPath": str(self._socket),
            "ControlPersist": PERSIST_SECONDS,
            "ConnectTimeout": CONNECT_SECONDS,
            # A silent network is noticed after 45 s.
            "ServerAliveInterval": 15,
            "ServerAliveCountMax": 3,
            "ForwardX11": "no",
            "ForwardAgent": "no",
            "ClearAllForwardings": "yes",
            "RemoteCommand": "none",
            "RequestTTY": "no",
        }
        return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]

    @contextmanager
    def _among_processes(self) -> Iterator[None]:
        """One process logs in at a time: a second factor must not be asked for twice."""
        descriptor = os.open(f"{self._socket}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _explained(self, words: str) -> SchedulerError:
        """The error for ssh's complaint."""
        host = self.target.host
        detail = _last_line(words)
        if re.search(r"REMOTE HOST IDENTIFICATION HAS CHANGED", words):
            return SchedulerError(
                f"The host key of {host} has changed since you last logged in: ssh refuses to connect.",
                "Ask the cluster's support whether that is right; then: ssh-keygen -R HOST, and log in again.",
            )
        if re.search(r"could not resolve hostname|name or service not known", words, re.IGNORECASE):
            return NotConnected(
                f"There is no host {host!r}: {detail}.", "Check site.ssh, your network and your VPN."
            )
        if re.search(
            r"permission denied|host key verification failed|too many authentication failures|"
            r"no more authentication methods|keyboard-interactive|password",
            words,
            re.IGNORECASE,
        ):
            return LoginNeeded(
                f"{host} wants to ask you something (password, second factor or its host key): {detail}.",
                f"Log in once in this terminal, then try again: {self.login_words()}",
            )
        return NotConnected(
            f"{host} cannot be reached by ssh: {detail or 'no answer in time'}.",
            f"Check your network and VPN; this must work: {self.login_words()}",
        )

    # -- running -----------------------------------------------------------------------------------
    def run(
        self, script: str, *, stdin: bytes = b"", timeout: float = 30.0, again: bool = True, mark: str = ""
    ) -> Completed:
        """Run a POSIX shell script over there.

        again: may be run a second time when the line broke; False for what must happen once, which then
        raises Unreachable although the script may have run. mark: put in the environment of the local ssh
        process, to find it by.
        """
        self.ensure()
        for attempt in (1, 2):
            done = self._once(script, stdin, timeout, mark)
            if done.returncode != _NO_CONNECTION:
                return done
            if not again or attempt == 2:
                break
            self.ensure()
        raise Unreachable(
            f"The connection to {self.target.host} broke: {_last_line(done.stderr) or 'no reason given'}.",
            f"Try again; if it stays so, log in anew: {self.login_words()}",
        )

    def _once(self, script: str, stdin: bytes, timeout: float, mark: str) -> Completed:
        nonce = secrets.token_hex(8)
        try:
            done = subprocess.run(
                self.argv(script, nonce),
                input=stdin,
                capture_output=True,
                timeout=timeout,
                check=False,
                start_new_session=True,  # Ctrl-C ends gpt-tune's wait, not what it asked for
                env={**os.environ, "GPT_TUNE_MARK": mark},
            )
        except subprocess.TimeoutExpired as error:
            raise Unreachable(
                f"{self.target.host} gave no answer within {timeout:g} s.",
                "The login node or the network is slow: try again in a minute.",
            ) from error
        except OSError as error:
            raise _no_ssh(error) from error
        out = after(done.stdout, nonce)
        return Completed(done.returncode, out, after(done.stderr, nonce).decode("utf-8", "replace"))

    def argv(self, script: str, nonce: str) -> list[str]:
        """The ssh command that runs `script` over the existing line only."""
        # Without the line ssh would connect anew and ask: a proxy that fails keeps it from that.
        return [
            *program(), "-S", str(self._socket), "-o", "ControlMaster=no", "-o", "ProxyCommand=false", "-o",
            "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "RemoteCommand=none", "-T", self.target.host,
            wrapped(script, nonce),
        ]  # fmt: skip


def wrapped(script: str, nonce: str) -> str:
    """A command line that any login shell (bash, zsh, csh, fish) hands to sh unchanged.

    What a start-up file prints comes before the mark and is dropped. Exit code 255 stays ssh's own.
    """
    whole = (
        f"printf '{nonce}\\n'; printf '{nonce}\\n' >&2\n( {script}\n)\n"
        f"code=$?; [ $code -ne {_NO_CONNECTION} ] || code=254; exit $code"
    )
    encoded = base64.b64encode(whole.encode("utf-8", "surrogateescape")).decode()
    return f"sh -c 'eval \"`echo {encoded} | base64 -d`\"'"


def after(output: bytes, nonce: str) -> bytes:
    """What came after the mark; without the mark all of it (ssh's own complaint)."""
    found = output.find(nonce.encode() + b"\n")
    return output if found < 0 else output[found + len(nonce) + 1 :]


def quoted(words: Sequence[str]) -> str:
    """Words as one shell command."""
    return " ".join(shlex.quote(word) for word in words)


def in_flight(mark: str) -> bool:
    """Whether an ssh of this machine with that mark is still running."""
    wanted = f"GPT_TUNE_MARK={mark}".encode()
    return any(_has_variable(p, wanted) for p in Path("/proc").iterdir() if p.name.isdigit())


def _has_variable(process: Path, wanted: bytes) -> bool:
    try:
        return wanted in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _ssh(argv: list[str], timeout: float) -> Completed:
    """An ssh that needs no answer: its complaints go through a file, since a line kept open holds a pipe open."""
    with tempfile.TemporaryFile() as complaints:
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                timeout=timeout,
                check=False,
                start_new_session=True,
                env={**os.environ, "SSH_ASKPASS_REQUIRE": "never"},
            )
            code = done.returncode
        except subprocess.TimeoutExpired:
            code = -1
        except OSError as error:
            raise _no_ssh(error) from error
        complaints.seek(0)
        return Completed(code, b"", complaints.read().decode("utf-8", "replace"))


def _no_ssh(error: OSError) -> SchedulerError:
    return SchedulerError(
        f"Cannot run {program()[0]}: {error.strerror}.", "Install OpenSSH's client, or correct GPT_TUNE_SSH."
    )


def _last_line(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return lines[-1].rstrip(".\r") if lines else ""


def _socket_name(target: Target) -> str:
    return hashlib.sha256("\0".join([*program(), target.host]).encode()).hexdigest()[:16]


def _socket_folder() -> Path:
    """A private folder of this user and machine whose path is short enough for a socket."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    candidates = [Path(runtime) / "gpt-tune"] if runtime.startswith("/") and Path(runtime).is_dir() else []
    # Not the state folder first: a home on NFS may not hold sockets.
    candidates += [Path(tempfile.gettempdir()) / f"gpt-tune-ssh-{os.getuid()}", resources.state_dir() / "ssh"]
    for folder in candidates:
        if len(str(folder)) + 17 > _LONGEST_SOCKET:
            continue
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.lstat()
        except OSError:
            continue
        if found.st_uid == os.getuid() and not folder.is_symlink():
            folder.chmod(0o700)
            return folder
    raise SchedulerError(
        "There is no private folder for ssh's connections.", f"Remove or give back {candidates[-2]}."
    )
