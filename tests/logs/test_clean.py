"""No control character and no escape sequence gets through; ordinary text does."""

from __future__ import annotations

import time

import pytest

from gpt_tune.logs.clean import MAX_LINE, clean_line, split_lines
from gpt_tune.logs.prefixes import read, seconds


def unsafe(text: str) -> list[str]:
    return [c for c in text if ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2028\u2066\ufeff"]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b[38;2;180;60;0mgrad_norm\x1b[39m", "grad_norm"),
        (b"\x1b]0;title\x07after", "after"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b]0;no end: the text stays", "0;no end: the text stays"),
        (b"\x1bP1;2|data\x1b\\after", "after"),
        (b"\x1b(Bplain\x1b)0", "plain"),
        (b"\x1b[999999", ""),
        (b"a\x1b", "a"),
        (b"\xc2\x9b31mred", "red"),
        ("schön — ok ✓".encode(), "schön — ok ✓"),
        (b"bad \xff\xfe utf-8", "bad \ufffd\ufffd utf-8"),
        (b"nul\0s \x08\x07bell", "nuls bell"),
        ("right\u202eleft\u2066x".encode(), "rightleftx"),
        (b"tab\there", "tab here"),
    ],
)
def test_clean_line(raw: bytes, shown: str) -> None:
    assert clean_line(raw) == shown
    assert split_lines(raw)[0] == [shown]


def test_bars_are_taken_apart() -> None:
    lines, transient = split_lines(b"one\n\r 1%|a\r 2%|b\r 3%|c\ntwo\r\nthree\r\n")
    assert lines == ["one", " 1%|a", " 2%|b", " 3%|c", "two", "three"]
    assert transient == {1, 2}
    lines, transient = split_lines(b" 1%|a\r 2%|b\r")
    assert (lines, transient) == ([" 1%|a", " 2%|b"], {0, 1})


@pytest.mark.parametrize(
    "piece", [b"x", b"\x1b[", b"\x1b]", b"\xff", b"12: ", b"| ", b"{'", b"%|", b"[rank1]:", b"= "]
)
def test_a_hostile_line_of_a_megabyte_is_quick(piece: bytes) -> None:
    raw = (piece * (1024 * 1024 // len(piece) + 1))[: 1024 * 1024]
    began = time.process_time()
    lines, _ = split_lines(raw)
    for line in lines[:3]:
        read(line)
    assert time.process_time() - began < 0.5  # 50 ms is the aim; other work shares this machine
    assert all(len(line) <= MAX_LINE for line in lines)
    assert not unsafe("".join(lines))


@pytest.mark.parametrize(
    ("line", "label", "rank", "local", "host", "time_known"),
    [
        ("12: text", "12", 12, None, None, False),
        ("P0 3: text", "P0 3", 3, None, None, False),
        ("[default7]: text", "default7", None, 7, None, False),
        ("3: [rank0]:text", "3 rank0", 0, None, None, False),
        ("[1,31]<stdout>:text", "1,31", 31, None, None, False),
        ("node01: node01:99:120 [2] NCCL INFO x", "node01 node01", None, 2, "node01", False),
        ("(Worker pid=123, ip=10.0.0.2) text", "Worker pid=123, ip=10.0.0.2", None, None, "10.0.0.2", False),
        ("2023-09-15T05:12:40.917701119Z text", "", None, None, None, True),
        (
            "[2023-05-22 21:15:09,288] [INFO] [logging.py:96:log_dist] [Rank 0] step=1",
            "Rank 0",
            0,
            None,
            None,
            True,
        ),
        # Slurm's own processes are no writers of the run, and a program's name is no host.
        (
            "slurmstepd-b200-1: error: *** STEP 1.0 ON b200-1 CANCELLED AT x ***",
            "",
            None,
            None,
            "b200-1",
            False,
        ),
        ("slurmstepd[b200-1]: error: x", "", None, None, "b200-1", False),
        ("slurmd-node07.local: error: x", "", None, None, "node07.local", False),
        ("0: slurmstepd-b200-1: error: x", "0", 0, None, "b200-1", False),
        ("slurmstepd: error: *** JOB 7 ON b200-1 CANCELLED AT x ***", "", None, None, None, False),
        ("srun: error: b200-3: task 17: Exited with exit code 1", "", None, None, None, False),
        ("python3.11: can't open file 'x.py'", "", None, None, None, False),
        ("libcuda.so.1: cannot open shared object file", "", None, None, None, False),
        ("b200-1: text", "b200-1", None, None, "b200-1", False),
        ("RuntimeError: no host", "", None, None, None, False),
        ("loss: 3.0", "", None, None, None, False),
        ("iter 1631: loss", "", None, None, None, False),
    ],
)
def test_prefixes_say_who_and_when(
    line: str, label: str, rank: int | None, local: int | None, host: str | None, time_known: bool
) -> None:
    prefix = read(line)
    assert (prefix.label, prefix.rank, prefix.local_rank, prefix.host) == (label, rank, local, host)
    assert (prefix.time is not None) == time_known


def test_times() -> None:
    assert seconds("1970-01-02 00:00:01,500") == 86401.5
    assert seconds("2024-13-40 99:99:99") is None
    one, two = seconds("2024-04-07 02:11:08.25"), seconds("2024-04-07T02:11:14")
    assert one is not None
    assert two is not None
    assert two - one == pytest.approx(5.75)
