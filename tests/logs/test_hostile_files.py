"""Files as they really come: compressed, cut, in another encoding, with ranks and bars in one another."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gpt_tune.diagnosis import diagnose
from gpt_tune.errors import UserError
from gpt_tune.logs.parse import parse_files
from tests.logs.test_timer_blocks import step

TEXT = "".join(f"{step(i, 1000 + i)}\n" for i in range(1, 201)).encode()


def read(path: Path) -> list[tuple[int, float | None, float | None]]:
    return [(s.iteration, s.step_time_ms, s.loss) for s in parse_files([path]).steps()]


WANTED = [(i, 1000.0 + i, 2.5) for i in range(1, 201)]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("name", ["train.log.1.gz", "train.log"])
def test_compressed(tmp_path: Path, pack: Callable[[bytes], bytes], name: str) -> None:
    path = tmp_path / name
    path.write_bytes(pack(TEXT))
    assert read(path) == WANTED
    assert diagnose([path]).status == "healthy"


def test_a_gzip_that_was_cut_gives_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    whole = gzip.compress(os.urandom(50_000).hex().encode() + b"\n" + TEXT)
    path.write_bytes(gzip.compress(TEXT)[:-200])
    assert read(path) == WANTED[: len(read(path))]
    path.write_bytes(whole[:-8])
    assert len(read(path)) > 100


@pytest.mark.parametrize(
    ("raw", "said"), [(b"\x28\xb5\x2f\xfdxxxx", "zstd"), (b"\x1f\x8b\x08\x00garbage" * 9, "Cannot read")]
)
def test_what_cannot_be_unpacked_is_said(tmp_path: Path, raw: bytes, said: str) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(raw)
    with pytest.raises(UserError, match=said):
        parse_files([path])


def test_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(TEXT,))
    writer.start()
    assert read(path) == WANTED
    writer.join()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_utf16(tmp_path: Path, encoding: str, end: str) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(TEXT.decode().replace("\n", end).encode(encoding))
    assert read(path) == WANTED


def test_a_bar_glued_before_each_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    bars = "".join(
        f"\r\x1b[32m {i // 2}%|{'█' * 5}| {i}/200 [00:01<00:02,  1.00s/it]\x1b[0m{step(i, 1000 + i)}\r\n"
        for i in range(1, 201)
    )
    path.write_bytes(bars.encode())
    assert read(path) == WANTED


def test_ranks_in_the_middle_of_lines_never_make_a_wrong_number(tmp_path: Path) -> None:
    """A record that another one was written into may be lost; what is read is right."""
    path = tmp_path / "a.log"
    lost = 0
    for cut in range(5, len(step(1, 1001)), 7):
        first, second = step(1, 1001), step(2, 1002)
        path.write_text(f"{first[:cut]}{second}\n{first[cut:]}\n{step(3, 1003)}\n")
        got = read(path)
        assert set(got) <= set(WANTED[:3]), cut
        assert WANTED[1] in got or WANTED[0] in got, cut
        lost += len(got) < 3
    assert lost
