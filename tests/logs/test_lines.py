"""Levels of lines, filters and folding."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gpt_tune.errors import UserError
from gpt_tune.logs.filter import LineFilter, parse_filter
from gpt_tune.logs.fold import Folder, fold
from gpt_tune.logs.lines import level_of, read_line, shown

LEVELS = [
    ("[2026-11-30 05:54:04,930] [INFO] [engine.py:2317:_do] ok", "info"),
    ("[2026-11-30 05:54:04,930] [WARNING] [stage3.py:1:step] pressure", "warning"),
    ("3: [rank3]:[E1130 05:54:03.095152109 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught", "error"),
    ("[rank3]:[W1130 05:54:03.095152109 init.cpp:774] Warning: nvfuser", "warning"),
    ("E1130 05:54:03.123000 140 torch/distributed/elastic/multiprocessing/api.py:869] failed", "error"),
    ("node1:12:13 [0] NCCL WARN Call to connect", "warning"),
    ("node1:12:13 [0] NCCL INFO Channel 00", "info"),
    ("ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1)", "error"),
    ("2026-11-30 05:54:04.930 | ERROR    | __main__:main:12 - boom", "error"),
    ("2026-11-30 05:54:04,930 - trainer - ERROR - boom", "error"),
    ("2026-11-30 05:54:04 WARNING loader slow", "warning"),
    ("slurmstepd: error: *** STEP 1.0 ON n CANCELLED ***", "error"),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory.", "error"),
    ("[rank1]: Traceback (most recent call last):", "error"),
    ("/usr/lib/x.py:12: FutureWarning: deprecated", "warning"),
    ("[2026-11-30 05:54:04,930] [INFO] [x.py:1:y] [deepspeed] OVERFLOW! Rank 0 Skipping step.", "info"),
    ("Killed", "error"),
    # words that frighten and mean nothing
    ("saved /fsx/runs/error_analysis/ckpt.pt", ""),
    ("0 errors, 0 warnings", ""),
    ("export NCCL_DEBUG=WARN", ""),
    ("the text says: the king was killed", ""),
    ("setting the log level to ERROR", ""),
    ("loading /data/ERROR: notes.txt", ""),
    (" iteration 10/ 100 | lm loss: 2.0E+00 | number of nan iterations: 0 |", ""),
    ("", ""),
]


@pytest.mark.parametrize(("text", "level"), LEVELS)
def test_levels(text: str, level: str) -> None:
    assert level_of(text) == level


def test_shown_is_what_a_pane_draws() -> None:
    assert shown("  a   b\x1b[31m\u202e|    c") == "  a b�[31m| c"


@pytest.mark.parametrize(
    ("text", "kept", "dropped"),
    [
        ("level:error", "ERROR: x", "INFO: x"),
        ("level:warn", "ERROR: x", "plain"),
        ("rank:0-7,12", "12: hello", "11: hello"),
        ("rank:3", "[rank3]: hello", "hello"),
        ("node:b200-3", "b200-3: hello", "b200-31: hello"),
        ("node:b200-[1-4]", "b200-4: hello", "b200-5: hello"),
        ("node:b200-*", "b200-4: hello", "h100-5: hello"),
        ("node:b200-3", "b200-3.cluster.local: hello", "c-3.cluster.local: hello"),
        ("/nccl.*timeout/", "NCCL  got a   TimeOut", "timeout nccl"),
        ('"lm loss: 2"', "lm loss:     2", "lm loss: 3"),
        ("grad norm", "the norm of the grad", "the grad"),
        ("rank:1 level:error", "1: Error: x", "2: Error: x"),
        ("", "anything", None),
    ],
)
def test_filters(text: str, kept: str, dropped: str | None) -> None:
    wanted = parse_filter(text)
    assert wanted.matches(kept)
    assert dropped is None or not wanted.matches(dropped)
    assert wanted.matches(read_line(kept))


@pytest.mark.parametrize(
    ("text", "word"),
    [("level:terrible", "terrible"), ("rank:x", "rank:x"), ("rank:7-3", "backwards"), ("node:", "no node"),
     ("/a/ /b/", "two patterns"), ("/(/", "cannot be used"), ("rank:99999999999", "no list")],
)  # fmt: skip
def test_a_wrong_filter_is_refused_in_words(text: str, word: str) -> None:
    with pytest.raises(UserError) as error:
        parse_filter(text)
    assert word in error.value.message


def test_words_of_a_filter() -> None:
    assert parse_filter("level:error rank:0-7 node:n1 /x/").words() == "errors of ranks 0 to 7 on n1 with /x/"
    assert parse_filter("rank:3").words() == "of rank 3"
    assert LineFilter().empty
    assert LineFilter().words() == "all lines"


def test_64_ranks_say_the_same() -> None:
    lines = [
        f"{r:2d}: node{r // 8}:1{r}:9 [{r % 8}] NCCL WARN pid {r} found 0x{r:012x} on GPU {r % 8}"
        for r in range(64)
    ]
    (one,) = fold(lines)
    assert one.count == 64
    assert one.words == "64 ranks say the same"
    assert one.text == lines[0]
    assert len(one.hosts) == 8


def test_figures_are_never_folded_together() -> None:
    assert len(fold([" iteration 1/9 | lm loss: 2.0", " iteration 2/9 | lm loss: 2.0", "", ""])) == 4


@dataclass(frozen=True)
class _Line:
    text: str
    source: str = "a"


def test_an_earlier_line_grows_and_says_which() -> None:
    folder = Folder()
    first = folder.add([_Line("0: hello"), _Line("0: other")])
    assert [f.index for f in first] == [0, 1]
    (grown,) = folder.add([_Line("1: hello"), _Line("2: hello")])
    assert (grown.index, grown.count, grown.ranks) == (0, 3, (0, 1, 2))


def test_memory_is_bounded_and_old_lines_are_left_alone() -> None:
    folder = Folder(window=10)
    folder.add([_Line("0: hello")])
    folder.add([_Line(f"0: line {i} x") for i in range(1000)])
    (again,) = folder.add([_Line("1: hello")])
    assert again.index == 1001
    assert again.count == 1
    assert len(folder._groups) == 10
