"""Owns a real sshd on loopback for tests: its own port, host key and user key; ended connections on demand."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import ports, private, processes

_SBIN = "/usr/sbin:/usr/local/sbin:/sbin"
HOST = "login"  # the alias in the tests' own ssh configuration
LOCKED = "locked"  # the same machine with a key that asks for PASSPHRASE
PASSPHRASE = "open sesame"

_SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin yes
PrintMotd no
{extra}
"""
_CLIENT = """\
Host {host}
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  LogLevel ERROR
Host stranger
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/other_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
Host locked
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/locked_key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
Host unknown-key
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking yes
Host nobody-home
  HostName 127.0.0.1
  Port {closed}
"""


def missing_reason() -> str | None:
    """Why no sshd can be started here, or None."""
    for program in ("ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"{program} is not installed: apt-get install openssh-client"
    if _sshd() is None:
        return "sshd is not installed: apt-get install openssh-server"
    return None


def _sshd() -> str | None:
    # sshd insists on an absolute path.
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":" + _SBIN)


@dataclass
class SshServer:
    """A running sshd. `command` is what GPT_TUNE_SSH must be to meet it."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def command(self) -> str:
        return f"ssh -F {shlex.quote(str(self.folder / 'ssh_config'))}"

    def start(self) -> None:
        """Start (again) on the same port."""
        program = _sshd()
        assert program is not None
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # compiled in; sshd refuses to start without
        log = (self.folder / "sshd.log").open("ab")
        self.process = subprocess.Popen(
            [program, "-D", "-e", "-f", str(self.folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        processes.wait_until(self._listens, 10, "sshd's start")

    def _listens(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError((self.folder / "sshd.log").read_text()[-500:])
        return processes.read_pid(self.folder / "sshd.pid") == self.process.pid

    def sessions(self) -> list[int]:
        """Processes of the connections it serves now."""
        assert self.process is not None
        found: list[int] = []
        parents = {self.process.pid}
        for _ in range(4):  # the privileged part, the user's part, and shells below
            children = [pid for pid, parent in _parents() if parent in parents and pid not in found]
            found += children
            parents = set(children)
        return found

    def kill_connections(self) -> None:
        """What a login node's restart or a cut cable does to every connection."""
        processes.kill(self.sessions(), (signal.SIGKILL,))

    def stop(self) -> None:
        """End it with its connections."""
        if self.process is None:
            return
        self.kill_connections()
        processes.kill([self.process.pid], (signal.SIGTERM, signal.SIGKILL))
        self.process.wait(timeout=10)
        self.process = None


def start(folder: Path, extra: str = "") -> SshServer:
    """Make keys and start. extra: further lines of sshd_config."""
    for name, secret in (("host_key", ""), ("user_key", ""), ("other_key", ""), ("locked_key", PASSPHRASE)):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", secret, "-f", str(folder / name)],
            check=True,
            timeout=20,
        )
    (folder / "authorized_keys").write_bytes(
        (folder / "user_key.pub").read_bytes() + (folder / "locked_key.pub").read_bytes()
    )
    with ports.claimed_block(private.base_folder(), 2) as port:
        host_key = " ".join((folder / "host_key.pub").read_text().split()[:2])
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n")
        (folder / "sshd_config").write_text(_SSHD.format(folder=folder, port=port, extra=extra))
        user = pwd.getpwuid(os.getuid()).pw_name
        (folder / "ssh_config").write_text(
            _CLIENT.format(folder=folder, port=port, closed=port + 1, user=user, host=HOST)
        )
        server = SshServer(folder, port)
        server.start()
    return server


def _parents() -> list[tuple[int, int]]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                stat = (process / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            found.append((int(process.name), int(stat[1])))
    return found
