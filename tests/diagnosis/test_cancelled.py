"""A cancel is no failure: exit codes of its own signals are its echoes; those of a failure before it are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpt_tune.diagnosis import Diagnosis, diagnose
from tests.logs.test_table import line

STEPS = [line(i) for i in range(1, 30)]
STEP = "slurmstepd-b200-1: error: *** STEP 7.0 ON b200-1 CANCELLED AT 2026-11-30T12:00:00 DUE TO SIGNAL Terminated ***"
JOB = "slurmstepd: error: *** JOB 7 ON b200-1 CANCELLED AT 2026-11-30T12:00:00 ***"
TOLD = ["Exited with exit code 130", "Exited with exit code 138", "Exited with exit code 143", "Terminated"]
KILLED = ["Exited with exit code 137", "Killed"]


def task(how: str, node: int = 1) -> str:
    return f"srun: error: b200-{node}: task {node}: {how}"


def judged(tmp_path: Path, lines: list[str], state: str, reason: str = "") -> Diagnosis:
    path = tmp_path / "log"
    path.write_text("\n".join([*STEPS, *lines]) + "\n")
    return diagnose([path], state=state, reason=reason)


@pytest.mark.parametrize("how", TOLD)
@pytest.mark.parametrize("before", [[], [STEP], [JOB, STEP]])
def test_what_the_signals_of_a_cancel_leave(tmp_path: Path, how: str, before: list[str]) -> None:
    for lines in ([*before, task(how), task(how, 2)], [task(how), task(how, 2), *before]):
        got = judged(tmp_path, lines, "CANCELLED", "cancelled by you")
        assert got.root_cause is not None
        assert (got.status, got.root_cause.id, got.root_cause.severity) == ("warning", "F77", "warning")
        assert got.root_cause.text.startswith("You cancelled the job")
        assert "resubmit" in got.root_cause.fix
        (echo,) = [f for f in got.findings if f.id == "F79"]
        assert (echo.severity, echo.echo_of) == ("info", "F77")


@pytest.mark.parametrize("how", [*TOLD, *KILLED, "Exited with exit code 1"])
def test_what_comes_after_the_cancel_is_its_echo(tmp_path: Path, how: str) -> None:
    got = judged(tmp_path, [JOB, task(how)], "CANCELLED")
    assert got.root_cause is not None
    assert (got.root_cause.id, [f.echo_of for f in got.findings if f.id == "F79"]) == ("F77", ["F77"])


@pytest.mark.parametrize(
    "how", [*KILLED, "Exited with exit code 1", "Segmentation fault", "Aborted (core dumped)"]
)
def test_what_failed_before_somebody_cancelled_stays_the_cause(tmp_path: Path, how: str) -> None:
    for lines in ([task(how), JOB], [task("Exited with exit code 138"), task(how, 2), JOB]):
        got = judged(tmp_path, lines, "CANCELLED")
        assert got.root_cause is not None
        assert (got.root_cause.id, got.root_cause.severity) == ("F79", "error")


@pytest.mark.parametrize("state", ["FAILED", "RUNNING", "COMPLETED"])
@pytest.mark.parametrize("how", [*TOLD, *KILLED])
def test_without_a_cancel_it_stays_an_error(tmp_path: Path, state: str, how: str) -> None:
    told = next((f for f in judged(tmp_path, [task(how), STEP], state).findings if f.id == "F79"), None)
    assert told is None or told.severity == "error"
    if state == "FAILED":
        assert told is not None


def test_a_log_alone_tells_the_cancel_of_the_job_from_that_of_a_step(tmp_path: Path) -> None:
    job = judged(tmp_path, [JOB, task("Exited with exit code 138")], "UNKNOWN").root_cause
    step = judged(tmp_path, [STEP, task("Exited with exit code 138")], "UNKNOWN").root_cause
    assert job is not None
    assert step is not None
    assert (job.id, step.id) == ("F77", "F79")


@pytest.mark.parametrize("how", [*TOLD, *KILLED])
def test_a_time_limit_brings_them_about_too(tmp_path: Path, how: str) -> None:
    limit = JOB.replace(" ***", " DUE TO TIME LIMIT ***").replace(
        "error: DUE TO TIME LIMIT ***", "error: ***"
    )
    for lines in ([limit, task(how)], [task(how), limit]):
        got = judged(tmp_path, lines, "TIMEOUT")
        assert got.root_cause is not None
        assert (got.root_cause.id, [f.echo_of for f in got.findings if f.id == "F79"]) == ("F72", ["F72"])


@pytest.mark.parametrize(
    ("reason", "start"),
    [
        ("cancelled by you", "You cancelled"),
        (f"CANCELLED by {os.getuid()}", "You cancelled"),
        (f"CANCELLED by {os.getuid() + 1}", f"The job was cancelled by user {os.getuid() + 1};"),
        ("", "The job was cancelled;"),
    ],
)
def test_who_cancelled_it(tmp_path: Path, reason: str, start: str) -> None:
    root = judged(tmp_path, [], "CANCELLED", reason).root_cause
    assert root is not None
    assert root.text.startswith(start)


def test_an_error_of_the_program_outweighs_the_cancel(tmp_path: Path) -> None:
    oom = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.06 GiB. GPU 2 has a total capacity of 79.25 GiB of which 6.96 GiB is free."  # noqa: E501
    root = judged(
        tmp_path, [oom, JOB, task("Exited with exit code 143")], "CANCELLED", "cancelled by you"
    ).root_cause
    assert root is not None
    assert root.id == "F1"
