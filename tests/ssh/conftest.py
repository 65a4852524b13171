"""Owns the sshd of these tests and a connection to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpt_tune.schedulers import login
from gpt_tune.schedulers.ssh import Connection, Target
from tests.ssh import server
from tests.ssh.server import HOST, SshServer


@pytest.fixture(scope="session")
def sshd_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sshd")


@pytest.fixture(scope="session")
def sshd_session(sshd_folder: Path) -> Iterator[SshServer]:
    reason = server.missing_reason()
    if reason:
        pytest.skip(reason)
    running = server.start(sshd_folder, f"SetEnv SHELL={_shell(sshd_folder)}")
    yield running
    running.stop()


def _shell(folder: Path) -> Path:
    """A login shell that talks, and that sets what the test wants: the file `profile` of the folder."""
    path = folder / "shell"
    path.write_text(
        "#!/bin/sh\n"
        'echo "Welcome to the cluster: 99 % of scratch is used"\n'
        f"[ ! -r {folder}/profile ] || . {folder}/profile\n"
        'exec sh "-${1#-l}" "$2"\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def sshd(sshd_session: SshServer, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SshServer:
    """A running sshd, GPT_TUNE_SSH pointing at it, and nobody there to answer questions."""
    sockets = tmp_path / "run"
    if len(str(sockets)) > 60:  # xdist's folders are too deep for a socket
        sockets = Path("/tmp") / f"gtssh-{sshd_session.port}"
    sockets.mkdir(exist_ok=True, mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(sockets))
    monkeypatch.setenv("GPT_TUNE_SSH", sshd_session.command)
    monkeypatch.setattr(login, "handler", None)
    (sshd_session.folder / "profile").write_text("")
    return sshd_session


@pytest.fixture
def connection(sshd: SshServer) -> Iterator[Connection]:
    opened = Connection(Target(HOST))
    yield opened
    opened.close()
