"""A run that left in good order before its last step: COMPLETED stays, and a note says how far it came."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpt_tune.diagnosis import Diagnosis, diagnose
from tests.logs import corpus
from tests.logs.test_table import line

SAID = "job 7: received SIG{}, telling the trainer to save and stop"
MEGATRON = "[exiting program after receiving SIGTERM.] datetime: 2026-11-30 11:00:00 "


def steps(first: int, last: int, total: int = 5231, every: int = 1) -> list[str]:
    return [re.sub(r"/ +1000\b", f"/ {total}", line(i)) for i in range(first, last + 1, every)]


def judged(tmp_path: Path, lines: list[str], state: str) -> Diagnosis:
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + "\n")
    return diagnose([path], state=state)


def notes(got: Diagnosis) -> list[str]:
    return [f.text for f in got.findings if f.id == "F266"]


def test_the_log_line_has_a_total() -> None:
    assert "/ 5231" in steps(1, 1)[0]


@pytest.mark.parametrize("state", ["COMPLETED", "UNKNOWN"])
@pytest.mark.parametrize(
    ("after", "name"),
    [
        ([SAID.format("TERM")], "SIGTERM"),
        ([SAID.format("USR1"), *steps(491, 491)], "SIGUSR1"),
        ([SAID.format("INT"), *steps(491, 492)], "SIGINT"),
        ([MEGATRON], "SIGTERM"),
    ],
)
def test_stopped_by_a_signal(tmp_path: Path, state: str, after: list[str], name: str) -> None:
    got = judged(tmp_path, [*steps(400, 490), *after], state)
    last = 490 + len(after) - 1
    assert notes(got) == [f"It stopped at step {last} of 5,231 (9 %) after a signal ({name})."]
    assert not got.alarming
    assert got.root_cause is None
    if state == "COMPLETED":
        assert got.status == "completed"


@pytest.mark.parametrize("state", ["COMPLETED", "UNKNOWN"])
@pytest.mark.parametrize(
    "lines",
    [
        steps(5200, 5231),
        [*steps(5200, 5231), SAID.format("TERM")],
        # told to stop once, it came back and went on to its end
        [*steps(1, 90), SAID.format("TERM"), *steps(91, 120), *steps(5220, 5231)],
        [],
    ],
)
def test_what_came_to_its_end_did_not(tmp_path: Path, state: str, lines: list[str]) -> None:
    assert notes(judged(tmp_path, lines, state)) == []


def test_every_tenth_step_printed_the_last_may_be_missing(tmp_path: Path) -> None:
    assert notes(judged(tmp_path, steps(10, 5230, every=10), "COMPLETED")) == []
    (note,) = notes(judged(tmp_path, steps(10, 1000, every=10), "COMPLETED"))
    assert note == "It stopped at step 1,000 of 5,231 (19 %), before the last one."


@pytest.mark.parametrize("state", ["RUNNING", "UNKNOWN", "FAILED", "CANCELLED", "TIMEOUT", "PENDING"])
def test_without_a_signal_only_a_completed_job_has_stopped(tmp_path: Path, state: str) -> None:
    assert notes(judged(tmp_path, steps(400, 490), state)) == []


@pytest.mark.parametrize("number", corpus.numbers())
def test_logs_that_simply_end_are_left_alone(number: str) -> None:
    assert notes(diagnose([corpus.log(number)])) == []
