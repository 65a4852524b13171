"""The matrix's own report: what it reads from pytest, and when it calls a version good."""

from __future__ import annotations

import sys

import pytest

from tests.cluster import matrix
from tests.cluster.matrix import Result


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("7 passed, 858 deselected in 22.30s", {"passed": 7}),
        ("==== 2 failed, 85 passed, 1 skipped, 3 errors in 100.11s (0:01:40) ====", {
            "failed": 2, "passed": 85, "skipped": 1, "error": 3,
        }),
        ("no tests ran in 0.10s", {}),
    ],
)  # fmt: skip
def test_the_last_line(line: str, counts: dict[str, int]) -> None:
    assert matrix._told([sys.executable, "-c", f"print('3 passed the door'); print({line!r})"]) == counts


def test_a_crash_is_no_success() -> None:
    assert matrix._told([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]) == {"error": 1}


def test_words_and_judgement() -> None:
    good = Result("24.11", "with and without slurmdbd", {"passed": 7, "skipped": 1}, 12.4)
    assert good.good
    assert good.words() == "24.11    7 passed, 1 skipped; with and without slurmdbd; 12 s"
    assert not Result("24.11", "", {"passed": 7, "failed": 1}, 1.0).good
    assert not Result("24.11", "", {}, 1.0).good
    away = Result("26.05", "", {}, 0.0, "debootstrap is not installed")
    assert not away.good
    assert "not run: debootstrap" in away.words()


def test_an_unknown_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert matrix.main(["19.05"]) == 2
    assert "known: 22.05" in capsys.readouterr().err
