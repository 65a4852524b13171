"""Logs over one channel: live, and back at the right byte after every disconnect."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpt_tune.logs.follow import Follower
from gpt_tune.schedulers import ssh_tail
from gpt_tune.schedulers.ssh import Connection, LoginNeeded, Target
from gpt_tune.schedulers.ssh_tail import RemoteTail
from gpt_tune.workflows.remote_logs import SshReader
from tests.cluster import processes, wait_until
from tests.ssh.server import SshServer

Open = Callable[..., tuple[SshReader, Follower]]


@pytest.fixture
def follow(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens a follower over ssh; all are closed at the end."""
    monkeypatch.setattr(ssh_tail, "_BACK_OFF_SECONDS", (0.1,))
    opened: list[SshReader] = []

    def start(*paths: Path, whole: bool = True) -> tuple[SshReader, Follower]:
        reader = SshReader(connection, [str(p) for p in paths])
        opened.append(reader)
        tail = {"tail_bytes": None} if whole else {}
        return reader, Follower(paths, reader, **tail)  # type: ignore[arg-type]

    yield start
    for reader in opened:
        reader.close()


def lines_until(follower: Follower, count: int, seconds: float = 40) -> list[str]:
    """Lines as they come until there are `count` of them."""
    found: list[str] = []

    def enough() -> bool:
        for batch in follower.poll():
            if batch.reset:
                found.clear()
            found.extend(batch.lines)
        return len(found) >= count

    wait_until(enough, seconds, f"{count} lines")
    return found


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_lines_come_as_they_are_written(follow: Open, tmp_path: Path) -> None:
    log = tmp_path / "it's a $log.out"
    log.write_text("one\ntwo\n")
    _, follower = follow(log)
    assert lines_until(follower, 2) == ["one", "two"]
    append(log, "three\nhalf")
    assert lines_until(follower, 1) == ["three"]
    append(log, " of it\n")
    assert lines_until(follower, 1) == ["half of it"]


def test_a_log_that_does_not_exist_yet(follow: Open, tmp_path: Path) -> None:
    log = tmp_path / "later"
    _, follower = follow(log)
    assert follower.poll() == []
    assert follower.sources[str(log)].waiting
    log.write_text("first\n")
    assert lines_until(follower, 1) == ["first"]


def test_several_files_of_a_job_are_one_channel(follow: Open, sshd: SshServer, tmp_path: Path) -> None:
    logs = [tmp_path / f"rank{i}" for i in range(5)]
    for i, log in enumerate(logs):
        log.write_text(f"rank {i}\n")
    reader, follower = follow(*logs)
    assert sorted(lines_until(follower, 5)) == [f"rank {i}" for i in range(5)]
    assert reader._more == []


@pytest.mark.parametrize("how", ["connection", "channel"])
def test_no_line_is_lost_or_doubled_by_disconnects(
    follow: Open, sshd: SshServer, tmp_path: Path, how: str
) -> None:
    """A writer goes on while the connection is cut again and again."""
    log = tmp_path / "log"
    log.touch()
    reader, follower = follow(log)
    enough = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        with log.open("a", buffering=1) as file:
            while not (enough.is_set() and written >= 1000):
                file.write(f"line {written} {'x' * (written % 97)}\n")
                written += 1
                if written % 20 == 0:
                    enough.wait(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    chance = random.Random(5)
    got: list[str] = []
    cuts = 0
    next_cut = time.monotonic() + 0.7

    def complete() -> bool:
        nonlocal cuts, next_cut
        for batch in follower.poll():
            assert not batch.reset
            got.extend(batch.lines)
        if cuts < 5 and time.monotonic() > next_cut and reader._tail.problem is None:
            cuts += 1
            next_cut = time.monotonic() + chance.uniform(0.3, 1.0)
            if how == "connection":
                sshd.kill_connections()
            elif (process := reader._tail._process) is not None:
                os.kill(process.pid, signal.SIGKILL)
        if cuts == 5:
            enough.set()
        return not writer.is_alive() and len(got) >= written

    try:
        wait_until(complete, 90, "all lines")
    finally:
        enough.set()
        writer.join()
    assert [line.split()[1] for line in got] == [str(i) for i in range(written)]


def test_what_was_written_meanwhile_comes_after_the_reconnect(
    follow: Open, sshd: SshServer, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    reader, follower = follow(log)
    assert lines_until(follower, 1) == ["before"]
    sshd.stop()
    try:
        wait_until(lambda: reader.problem is not None, 30, "the loss is noticed")
        assert "broke" in str(reader.problem) or "refused" in str(reader.problem)
        append(log, "meanwhile\n")
        assert follower.poll() == []  # no error, nothing lost
    finally:
        sshd.start()
    assert lines_until(follower, 1) == ["meanwhile"]
    assert reader.problem is None


@pytest.mark.parametrize("grown", ["shorter", "longer"])
def test_a_truncated_log_starts_anew(follow: Open, tmp_path: Path, grown: str) -> None:
    log = tmp_path / "log"
    log.write_text("old 1\nold 2\nold 3\n")
    _, follower = follow(log)
    lines_until(follower, 3)
    text = "new 1\n" if grown == "shorter" else "".join(f"new {i}\n" for i in range(1, 30))
    log.write_text(text)  # in place: the same inode
    assert lines_until(follower, len(text.splitlines()))[0] == "new 1"


def test_a_rotated_log_loses_nothing(follow: Open, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\n")
    _, follower = follow(log)
    assert lines_until(follower, 1) == ["one"]
    append(log, "two\n")
    log.rename(tmp_path / "log.1")
    log.write_text("three\n")
    seen: list[str] = []

    def all_there() -> bool:
        for batch in follower.poll():
            seen.extend(batch.lines)
        return "three" in seen

    wait_until(all_there, 30, "the new file")
    assert seen[-1] == "three"
    assert seen.count("two") == 1


def test_a_large_log_is_opened_at_its_end_and_read_backwards(follow: Open, tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = "x" * 99 + "\n"
    count = 40_000  # 4 MB
    log.write_text("".join(f"{i:05d}{line[5:]}" for i in range(count)))
    _, follower = follow(log, whole=False)
    last = lines_until(follower, 2000)
    assert last[-1].startswith(f"{count - 1:05d}")
    assert len(last) * 100 <= ssh_tail.TAIL_BYTES
    older = follower.older(str(log))
    assert older is not None
    assert older.lines[-1][:5] == f"{int(last[0][:5]) - 1:05d}"


def test_more_than_the_window_arrives_whole(
    follow: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that is behind holds the channel back instead of filling memory."""
    monkeypatch.setattr(ssh_tail, "_WINDOW_BYTES", 200_000)
    monkeypatch.setattr(ssh_tail, "_CHUNK_BYTES", 65_536)
    monkeypatch.setattr(ssh_tail, "_KEPT_BYTES", 1000)
    log = tmp_path / "log"
    log.touch()
    reader, follower = follow(log)
    follower.poll()
    append(log, "".join(f"{i:07d}\n" for i in range(300_000)))  # 2.4 MB
    file = reader._tail._by_path[str(log)]
    wait_until(lambda: len(file.window) > 200_000, 30, "a full window")
    assert len(file.window) < 400_000
    got = lines_until(follower, 300_000)
    assert [int(x) for x in got] == list(range(300_000))


def test_the_far_end_ends_with_the_channel(sshd: SshServer, connection: Connection, tmp_path: Path) -> None:
    """Nothing is left running on the login node."""
    log = tmp_path / "a-log-of-this-test"
    log.write_text("x\n")
    tail = RemoteTail(connection, [str(log)])
    wait_until(lambda: tail.connects, 20, "the channel")
    shells = sshd.sessions()
    tail.close()
    connection.close()
    wait_until(
        lambda: not [p for p in shells if processes.is_alive(p)], 20, "the end of the far end's shells"
    )


def test_a_login_that_needs_the_user_is_told_and_not_hammered(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = RemoteTail(Connection(Target("stranger")), [str(tmp_path / "x")])
    try:
        wait_until(lambda: tail.problem is not None, 20, "the problem")
        assert isinstance(tail.problem, LoginNeeded)
        assert tail.stat(str(tmp_path / "x")) is None
    finally:
        tail.close()
