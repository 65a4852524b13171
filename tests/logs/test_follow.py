"""Following files: late, growing, rotated, truncated, replaced, damaged, huge."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_tune.logs.clean import split_lines
from gpt_tune.logs.follow import MAX_PARTIAL, FilesReader, Follower, LocalReader


def lines_of(follower: Follower) -> list[str]:
    return [line for batch in follower.poll() for line in batch.lines]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_opened_before_the_file_exists(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    follower = Follower([path])
    assert follower.poll() == []
    assert follower.sources[str(path)].waiting
    append(path, b"one\ntwo\nthr")
    assert lines_of(follower) == ["one", "two"]
    append(path, b"ee\n")
    assert lines_of(follower) == ["three"]
    assert lines_of(follower) == []


def test_starts_at_the_end_and_goes_back(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("".join(f"line {i}\n" for i in range(10_000)))
    follower = Follower([path], tail_bytes=1000)
    shown = lines_of(follower)
    assert shown[-1] == "line 9999"
    assert len(shown) < 120
    while (older := follower.older(str(path), 700)) is not None:
        shown = older.lines + shown
    assert shown == [f"line {i}" for i in range(10_000)]
    assert follower.older(str(path)) is None


def test_truncated_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("old 1\nold 2\n")
    follower = Follower([path])
    follower.poll()
    path.write_text("new\n")
    batches = follower.poll()
    assert [b.reset for b in batches] == [True, False]
    assert batches[1].lines == ["new"]


def test_truncated_and_longer_again_at_once(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("old 1\nold 2\n")
    follower = Follower([path])
    follower.poll()
    with path.open("r+b") as file:  # the same inode, as copytruncate does
        file.truncate(0)
        file.write(b"quite different and longer than before\nsecond\n")
    assert lines_of(follower) == ["quite different and longer than before", "second"]


def test_rotated_with_lines_left_in_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("one\n")
    follower = Follower([path])
    follower.poll()
    append(path, b"two\n")
    path.rename(tmp_path / "job.out.1")
    path.write_text("three\n")
    assert lines_of(follower) == ["two", "three"]


def test_replaced_by_another_file(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("one\n")
    follower = Follower([path])
    follower.poll()
    other = tmp_path / "other"
    other.write_text("a much longer file\nthan the one before\n")
    other.replace(path)
    assert lines_of(follower) == ["a much longer file", "than the one before"]


def test_any_number_of_files_by_pattern(tmp_path: Path) -> None:
    follower = Follower([tmp_path / "node-*.out"])
    assert follower.poll() == []
    for node in range(3):
        (tmp_path / f"node-{node}.out").write_text(f"hello {node}\n")
    assert sorted(lines_of(follower)) == ["hello 0", "hello 1", "hello 2"]


def test_bars_show_while_their_line_is_unfinished(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(b"")
    follower = Follower([path])
    append(path, b"\r 1%|a | 1/9 \r 2%|b | 2/9 ")
    assert [b.lines for b in follower.poll()] == [[" 1%|a | 1/9 "]]
    append(path, b"\r 3%|c | 3/9 \nnext\n")
    (batch,) = follower.poll()
    assert batch.lines == [" 2%|b | 2/9 ", " 3%|c | 3/9 ", "next"]
    assert batch.transient == {0}


def test_crlf_split_between_two_reads(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(b"")
    follower = Follower([path])
    append(path, b"one\r")
    assert lines_of(follower) == []
    append(path, b"\ntwo\r\n")
    assert lines_of(follower) == ["one", "two"]


def test_an_endless_line_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(b"")
    follower = Follower([path])
    for _ in range(3):
        append(path, b"x" * MAX_PARTIAL)
        follower.poll()
    source = follower.sources[str(path)]
    assert len(source.partial) <= MAX_PARTIAL
    append(path, b"x\nafter\n")
    assert lines_of(follower) == ["after"]


def test_unfinished_last_line_comes_with_flush(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(b"one\nlast words")
    follower = Follower([path])
    assert lines_of(follower) == ["one"]
    assert [b.lines for b in follower.flush()] == [["last words"]]
    assert follower.flush() == []


def test_a_poll_reads_a_bounded_amount(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(b"")
    follower = Follower([path], poll_bytes=1000)
    follower.poll()
    append(path, b"".join(b"line %d\n" % i for i in range(1000)))
    first = lines_of(follower)
    assert 0 < len(first) < 200
    assert follower.behind > 0
    rest = []
    while follower.behind:
        rest += lines_of(follower)
    assert first + rest == [f"line {i}" for i in range(1000)]


def test_a_sparse_file_of_50_gb_opens_at_once(tmp_path: Path) -> None:
    path = tmp_path / "big.out"
    with path.open("wb") as file:
        file.truncate(50 * 10**9)
        file.seek(0, 2)
        file.write(b"\nlast line\n")
    follower = Follower([path])
    assert lines_of(follower)[-1] == "last line"
    assert follower.sources[str(path)].start > 49 * 10**9
    older = follower.older(str(path))
    assert older is not None
    assert len(older.raw) <= 256 * 1024


class _Far:
    """The scheduler's file interface: sizes and bytes, no inodes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        data = (self.root / path).read_bytes()[offset:]
        return data if limit is None else data[:limit]

    def size(self, path: str) -> int | None:
        file = self.root / path
        return file.stat().st_size if file.exists() else None


def test_files_behind_the_schedulers_interface(tmp_path: Path) -> None:
    follower = Follower(["job.out"], FilesReader(_Far(tmp_path)))
    assert follower.poll() == []
    path = tmp_path / "job.out"
    path.write_text("one\ntwo\n")
    assert lines_of(follower) == ["one", "two"]
    path.write_text("other first\nother second\n")
    assert lines_of(follower) == ["other first", "other second"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=80), max_size=12))
def test_pieces_give_the_lines_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    """However a file grows, the same lines come out, in order and once."""
    path = tmp_path_factory.mktemp("grow") / "log"
    path.write_bytes(b"")
    follower = Follower([path], tail_bytes=None)
    shown: list[str] = []
    for piece in pieces:
        append(path, piece)
        shown += lines_of(follower)
    shown += [line for batch in follower.flush() for line in batch.lines]
    whole, _ = split_lines(b"".join(pieces))
    assert [s for line in shown if (s := line.strip())] == [s for line in whole if (s := line.strip())]


def test_reading_what_is_gone_is_no_error(tmp_path: Path) -> None:
    reader = LocalReader()
    assert reader.stat(str(tmp_path / "none")) is None
    assert reader.read(str(tmp_path / "none"), 0, 10) == b""
    path = tmp_path / "job.out"
    path.write_text("one\n")
    follower = Follower([path])
    follower.poll()
    path.unlink()
    assert follower.poll() == []
