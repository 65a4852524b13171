"""One line to the login node: made once, reused, broken, remade, and explained when it cannot be."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pexpect
import pytest

from gpt_tune.errors import SchedulerError
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Site
from gpt_tune.schedulers import login, ssh
from gpt_tune.schedulers.base import Unreachable
from gpt_tune.schedulers.ssh import Connection, LoginNeeded, NotConnected, Target
from tests.cluster import wait_until
from tests.ssh.server import HOST, LOCKED, PASSPHRASE, SshServer


def accepted(sshd: SshServer) -> int:
    """Logins so far."""
    return (sshd.folder / "sshd.log").read_text().count("Accepted publickey")


def test_many_commands_are_one_login(sshd: SshServer, connection: Connection) -> None:
    before = accepted(sshd)
    assert connection.run("echo one").text == "one\n"
    assert Connection(Target(HOST)).run("echo two").text == "two\n"
    assert connection.run("echo word >&2; exit 7").words == "word"
    assert connection.run("exit 7").returncode == 7
    assert accepted(sshd) - before == 1


def test_several_at_once_log_in_once(sshd: SshServer, connection: Connection) -> None:
    before = accepted(sshd)
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda: answers.append(Connection(Target(HOST)).run("echo x").text))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == ["x\n"] * 6
    assert accepted(sshd) - before == 1


@pytest.mark.parametrize(
    "text", ["a b", "it's", '"', "$HOME `id` $(id)", "back\\slash", "!! !x", "grüße", "a\nb", "*", "-n", "%s"]
)
def test_every_word_arrives_as_it_is(connection: Connection, text: str) -> None:
    assert connection.run(f"printf '%s' {ssh.quoted([text])}").text == text


@pytest.mark.parametrize("shell", ["sh", "bash", "csh", "fish", "zsh", "dash"])
def test_any_login_shell_passes_the_command_on(shell: str) -> None:
    words = ssh.wrapped("printf '%s' 'it'\\''s $x \"! *'", "mark")
    try:
        done = subprocess.run([shell, "-c", words], capture_output=True, timeout=20, check=False)
    except FileNotFoundError:
        pytest.skip(f"{shell} is not installed here")
    assert ssh.after(done.stdout, "mark") == b"it's $x \"! *"


def test_noise_of_start_up_files_is_dropped() -> None:
    assert ssh.after(b"Welcome!\nquota 99 %\nmark\nanswer\n", "mark") == b"answer\n"
    assert ssh.after(b"ssh: connection lost\n", "mark") == b"ssh: connection lost\n"


def test_exit_code_255_of_a_command_is_no_broken_line(connection: Connection) -> None:
    assert connection.run("exit 255").returncode == 254


def test_a_killed_connection_is_made_again(sshd: SshServer, connection: Connection) -> None:
    connection.run("true")
    sshd.kill_connections()
    assert connection.run("echo back").text == "back\n"


def test_what_must_happen_once_is_not_repeated(
    sshd: SshServer, connection: Connection, tmp_path: Path
) -> None:
    """The line breaks after the command has done its work: nobody may send it again."""
    marks = tmp_path / "marks"
    connection.ensure()
    failure: list[BaseException] = []

    def send() -> None:
        try:
            connection.run(f"echo x >> {marks}; sleep 60", again=False)
        except Unreachable as error:
            failure.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    wait_until(marks.exists, 20, "the command's work")
    sshd.kill_connections()
    thread.join(30)
    assert marks.read_text() == "x\n"
    assert len(failure) == 1
    assert "broke" in str(failure[0])
    assert "ssh" in str(failure[0])


def test_a_slow_answer_is_given_up(connection: Connection) -> None:
    with pytest.raises(Unreachable, match=r"no answer within 0\.5 s"):
        connection.run("sleep 60", timeout=0.5)


def test_a_server_that_is_away(sshd: SshServer, connection: Connection) -> None:
    connection.run("true")
    sshd.stop()
    try:
        with pytest.raises(NotConnected, match="refused"):
            connection.run("true")
    finally:
        sshd.start()
    assert connection.run("echo again").text == "again\n"


@pytest.mark.parametrize(
    ("host", "kind", "words"),
    [
        ("stranger", LoginNeeded, "Permission denied"),
        ("unknown-key", LoginNeeded, "ost key"),
        ("nobody-home", NotConnected, "refused"),
        ("no-such-host.invalid", NotConnected, "no host"),
    ],
)
def test_the_error_says_what_to_run(sshd: SshServer, host: str, kind: type[Unreachable], words: str) -> None:
    connection = Connection(Target(host))
    with pytest.raises(kind, match=words) as caught:
        connection.run("true")
    if kind is LoginNeeded:
        command = caught.value.hint.partition(": ")[2]
        assert command == connection.login_words()
        assert "BatchMode" not in command
        assert subprocess.run(command, shell=True, capture_output=True, timeout=30, check=False).returncode


def test_a_changed_host_key_is_never_accepted(sshd: SshServer) -> None:
    known = sshd.folder / "known_hosts"
    before = known.read_text()
    other = (sshd.folder / "other_key.pub").read_text().split()
    known.write_text(f"[127.0.0.1]:{sshd.port} {other[0]} {other[1]}\n")
    try:
        with pytest.raises(SchedulerError, match="host key"):
            Connection(Target(HOST)).run("true")
    finally:
        known.write_text(before)


def test_questions_go_to_the_user_once(sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can ask is handed the command; the line it makes is used from then on."""
    connection = Connection(Target("stranger"))
    asked: list[list[str]] = []

    def with_the_right_key(argv: list[str]) -> int:
        asked.append(argv)
        answer = ["-o", f"IdentityFile={sshd.folder}/user_key"]
        return subprocess.run([*argv[:-2], *answer, *argv[-2:]], timeout=30, check=False).returncode

    monkeypatch.setattr(login, "handler", with_the_right_key)
    try:
        assert connection.run("echo in").text == "in\n"
        assert connection.run("echo in").text == "in\n"
        assert asked == [connection.login_command()]
    finally:
        connection.close()


def test_a_user_who_gives_up_gets_the_command(sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "handler", lambda argv: 130)
    with pytest.raises(LoginNeeded, match="ask you something"):
        Connection(Target("stranger")).run("true")


@pytest.mark.parametrize("host", ["-oProxyCommand=touch pwned", "", "a b", "a;b", "$(id)", "host\n", "`id`"])
def test_a_login_node_is_no_option_and_no_command(host: str) -> None:
    with pytest.raises(SchedulerError, match="no login node"):
        Target(host)


def test_the_socket_is_private(sshd: SshServer, connection: Connection) -> None:
    connection.ensure()
    folder = Path(os.environ["XDG_RUNTIME_DIR"]) / "gpt-tune"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [p for p in folder.iterdir() if p.is_socket()]


def test_a_missing_ssh_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPT_TUNE_SSH", "/nonexistent/ssh")
    with pytest.raises(SchedulerError, match="Cannot run /nonexistent/ssh"):
        Connection(Target(HOST)).run("true")


def test_a_secret_is_typed_into_the_terminal_and_asked_for_once(sshd: SshServer, home: Path) -> None:
    """The command line hands the terminal to ssh; the next command finds the line made."""
    (sshd.folder / "profile").write_text(f"export PATH={home}\n")
    for tool in ("sh", "env"):
        (home / tool).symlink_to(f"/usr/bin/{tool}")
    sites.save(Site(cluster="vault", scheduler="slurm", ssh=LOCKED, run_root="/tmp"))
    connection = Connection(Target(LOCKED))
    command = [sys.executable, ["-m", "tui", "clusters", "vault"]]
    root = Path(__file__).resolve().parents[2]
    try:
        child = pexpect.spawn(*command, cwd=str(root), timeout=60, encoding="utf-8", env=dict(os.environ))
        child.expect("Enter passphrase for key")
        child.sendline(PASSPHRASE)
        child.expect("not on the PATH of locked")  # in, and there is no Slurm
        child.expect(pexpect.EOF)
        assert connection.is_up()
        child = pexpect.spawn(*command, cwd=str(root), timeout=60, encoding="utf-8", env=dict(os.environ))
        assert child.expect(["not on the PATH of locked", "passphrase"]) == 0
        child.expect(pexpect.EOF)
        assert PASSPHRASE not in "".join(
            p.read_text(errors="replace") for p in home.rglob("*") if p.is_file()
        )
    finally:
        connection.close()
