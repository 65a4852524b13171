"""Files at the far end: the same promises as on this machine, and the same words when they cannot be kept."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.schedulers.base import Files
from gpt_tune.schedulers.local_files import LocalFiles
from gpt_tune.schedulers.remote_files import RemoteFiles
from gpt_tune.schedulers.ssh import Connection
from tests.ssh.server import SshServer


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.fixture(params=["local", "ssh"])
def files(request: pytest.FixtureRequest) -> Files:
    if request.param == "local":
        return LocalFiles()
    return RemoteFiles(request.getfixturevalue("connection"))


NAMES = ["plain", "with blank", "it's", '"q"', "$HOME", "`id`", "-n", "grüße", "*", "a\\b", "~", "#x", ";x"]


@pytest.mark.parametrize("name", NAMES)
def test_written_read_listed_removed(files: Files, place: Path, name: str) -> None:
    data = bytes(range(256)) * 40 + b"\n\0end"
    path = str(place / name)
    files.write(path, data, 0o640)
    assert Path(path).read_bytes() == data
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o640
    assert files.read(path) == data
    assert files.read(path, 250, 20) == data[250:270]
    assert files.read(path, len(data) + 5) == b""
    assert files.size(path) == len(data)
    assert files.list(str(place)) == [name]
    files.write(path, b"new")
    assert files.read(path) == b"new"
    files.remove(path)
    files.remove(path)
    assert files.list(str(place)) == []


def test_folders_get_their_mode_at_every_level(files: Files, place: Path) -> None:
    deep = place / "a" / "b" / "c d"
    files.make_dir(str(deep), 0o750)
    files.make_dir(str(deep), 0o700)  # there already
    assert [stat.S_IMODE(p.stat().st_mode) for p in (deep, deep.parent, deep.parent.parent)] == [0o750] * 3
    (deep / "x").touch()
    files.remove(str(deep))  # not empty: stays
    assert deep.is_dir()


def test_touch_keeps_what_is_there(files: Files, place: Path) -> None:
    path = place / "log"
    files.touch(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("kept")
    files.touch(str(path))
    assert path.read_text() == "kept"


def test_what_is_not_there(files: Files, place: Path) -> None:
    missing = str(place / "no" / "such")
    assert files.size(missing) is None
    assert files.list(missing) == []
    actions: list[Callable[[], object]] = [
        lambda: files.read(missing),
        lambda: files.write(missing, b"x"),
        lambda: files.touch(missing),
    ]
    for action in actions:
        with pytest.raises(UserError, match="No such file or directory"):
            action()


def test_a_file_where_a_folder_is_needed(files: Files, place: Path) -> None:
    (place / "file").touch()
    actions: list[Callable[[], object]] = [
        lambda: files.make_dir(str(place / "file" / "below")),
        lambda: files.check_writable(str(place / "file" / "below")),
    ]
    for action in actions:
        with pytest.raises(UserError, match=r"ot a directory|exists"):
            action()


def test_a_full_disk(files: Files) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    folder = Path("/dev/shm")
    if not folder.is_dir():
        pytest.skip("this system has no /dev/shm")
    with pytest.raises(UserError):
        files.write("/dev/full/x", b"x")


def test_check_writable_leaves_nothing(files: Files, place: Path) -> None:
    files.check_writable(str(place / "new" / "deep"))
    assert list(place.iterdir()) == []
    with pytest.raises(UserError, match="absolute"):
        files.check_writable("relative")
    if Path("/proc/version").exists():
        with pytest.raises(UserError) as caught:
            files.check_writable("/proc/nowhere")
        assert caught.value.hint


def test_groups(files: Files, place: Path) -> None:
    folder = place / "g"
    folder.mkdir()
    with pytest.raises(UserError, match="no Unix group 'nosuchgroup'"):
        files.set_group(str(folder), "nosuchgroup")
    if os.getuid() == 0:
        files.set_group(str(folder), "daemon")
        assert folder.stat().st_gid != 0
        assert folder.stat().st_mode & stat.S_ISGID


@pytest.mark.parametrize("path", ["/tmp/a\nb", "/tmp/a\0b"])
def test_a_path_that_no_command_can_carry(connection: Connection, path: str) -> None:
    with pytest.raises(UserError, match="line break or NUL"):
        RemoteFiles(connection).write(path, b"x")


def test_identities_tell_a_replaced_file(connection: Connection, place: Path) -> None:
    files = RemoteFiles(connection)
    log = place / "log"
    log.write_text("one")
    before = files.stat(str(log))
    assert before is not None
    log.rename(place / "log.1")
    log.write_text("two")
    after = files.stat(str(log))
    assert after is not None
    assert after.identity != before.identity
    assert files.renamed(str(log), before.identity) == str(place / "log.1")
    assert files.renamed(str(log), "1:999999999") is None
    assert files.expand(str(place / "log*")) == [str(log), str(place / "log.1")]


def test_a_file_cut_on_its_way_never_replaces_the_whole_one(
    sshd: SshServer, connection: Connection, place: Path
) -> None:
    """What arrives is counted before it takes the name."""
    path = place / "script"
    path.write_text("whole")
    files = RemoteFiles(connection)
    script = ""

    real = connection.run

    def cut(text: str, **options: object) -> object:
        nonlocal script
        script = text
        return real(text, stdin=b"half", timeout=20.0)

    connection.run = cut  # type: ignore[method-assign, assignment]
    with pytest.raises(UserError):
        files.write(str(path), b"much longer than half")
    assert path.read_text() == "whole"
    assert [p.name for p in place.iterdir()] == ["script"]
    assert "much longer" not in script
