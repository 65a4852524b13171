"""Whole arrays and heterogeneous jobs, and their tasks and parts: held, released, requeued, signalled, cancelled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpt_tune import clusters
from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.ledger import Ledger
from gpt_tune.schedulers import slurm_changes, slurm_jobs
from gpt_tune.schedulers.base import ENDED, JobStatus, Scheduler, State
from gpt_tune.schedulers.slurm_cli import SlurmCli
from gpt_tune.workflows import adopt, outside, queue
from tests.cluster import SlurmCluster, wait_until

# One line in got-TASK for each signal.
LISTENS = (
    "trap 'echo got >> got-$SLURM_ARRAY_TASK_ID' USR1; touch ready-$SLURM_ARRAY_TASK_ID; "
    "while :; do read -t 0.1 <> <(:) || :; done"
)


@pytest.fixture
def scheduler(slurm: SlurmCluster) -> Scheduler:
    return SlurmCli()


def submitted(slurm: SlurmCluster, folder: Path, *options: str) -> str:
    script = folder / "job.sh"
    script.write_text(f"#!/bin/bash\ncd '{folder}'\n{LISTENS}\n")
    parts = " ".join(options).split(" : ")
    words = [w for part in parts[:-1] for w in (*part.split(), ":")]
    return slurm.run("sbatch", "--parsable", "-o", "/dev/null", *words, *parts[-1].split(), str(script))


def tasks(slurm: SlurmCluster, job_id: str) -> dict[str, str]:
    """State and reason of each task or part."""
    said = slurm.run("squeue", "-h", "--array", "-j", job_id, "-o", "%i %T %r")
    return {line.split()[0]: line.partition(" ")[2] for line in said.splitlines()}


def running(slurm: SlurmCluster, folder: Path, job_id: str, *names: str) -> None:
    wait_until(
        lambda: all((folder / f"ready-{n}").exists() for n in names)
        and not any("COMPLETING" in s for s in tasks(slurm, job_id).values()),
        30, f"{names} of {job_id} at work",
    )  # fmt: skip


@pytest.mark.slurm
def test_an_array_that_runs_in_part(scheduler: Scheduler, slurm: SlurmCluster, tmp_path: Path) -> None:
    array = submitted(slurm, tmp_path, "--array=1-5%2")
    running(slurm, tmp_path, array, "1", "2")
    scheduler.hold(array)
    now = tasks(slurm, array)
    assert {now[f"{array}_{n}"] for n in (3, 4, 5)} == {"PENDING JobHeldUser"}
    assert {now[f"{array}_{n}"] for n in (1, 2)} == {"RUNNING None"}
    scheduler.release(f"{array}_[3-5%2]")  # as a line of the queue names them
    assert not any("Held" in s for s in tasks(slurm, array).values())
    scheduler.hold(f"{array}_4")
    assert [n for n, s in tasks(slurm, array).items() if "Held" in s] == [f"{array}_4"]
    scheduler.release(f"{array}_4")
    with pytest.raises(SchedulerError, match=f"{array}_1 is RUNNING"):
        scheduler.hold(f"{array}_1")
    with pytest.raises(SchedulerError, match=f"{array}_5 is PENDING: only a running job"):
        scheduler.signal(f"{array}_5", "USR1")
    scheduler.requeue(f"{array}_1")
    wait_until(lambda: "RUNNING" not in tasks(slurm, array)[f"{array}_1"], 20, "the task's way back")
    scheduler.requeue(array)  # what waits already is no failure
    wait_until(lambda: "RUNNING" not in tasks(slurm, array)[f"{array}_2"], 20, "the other's way back")
    scheduler.cancel(f"{array}_5")
    wait_until(lambda: f"{array}_5" not in tasks(slurm, array), 20, "that task's end")
    assert f"{array}_4" in tasks(slurm, array)


@pytest.mark.slurm
@pytest.mark.parametrize("target", ["1", ""], ids=["a task", "the array"])
def test_a_signal_comes_once_while_other_tasks_wait(
    scheduler: Scheduler, slurm: SlurmCluster, tmp_path: Path, target: str
) -> None:
    """scancel would send it again every few seconds."""
    array = submitted(slurm, tmp_path, "--array=1-5%2")
    running(slurm, tmp_path, array, "1", "2")
    scheduler.signal(f"{array}_{target}" if target else array, "USR1")
    reached = {"1"} if target else {"1", "2"}
    wait_until(lambda: {p.name[4:] for p in tmp_path.glob("got-*")} >= reached, 10, "the signal")
    assert {p.name[4:]: p.read_text() for p in tmp_path.glob("got-*")} == dict.fromkeys(reached, "got\n")
    commands = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if _readable(p)]
    assert not [c for c in commands if b"scancel" in c and array.encode() in c]


def _readable(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


@pytest.mark.slurm
def test_a_heterogeneous_job(scheduler: Scheduler, slurm: SlurmCluster, tmp_path: Path) -> None:
    job_id = submitted(slurm, tmp_path, "-N1", ":", "-N2")
    wait_until(lambda: set(tasks(slurm, job_id).values()) == {"RUNNING None"}, 20, "both parts at work")
    running(slurm, tmp_path, job_id, "")
    scheduler.signal(job_id, "USR1")
    wait_until((tmp_path / "got-").exists, 10, "the signal")
    with pytest.raises(SchedulerError, match="requeued as a whole") as caught:
        scheduler.requeue(f"{job_id}+1")
    assert job_id in caught.value.hint
    scheduler.requeue(job_id)
    wait_until(lambda: all("PENDING" in s for s in tasks(slurm, job_id).values()), 20, "its way back")
    scheduler.hold(job_id)
    assert set(tasks(slurm, job_id).values()) == {"PENDING JobHeldUser"}
    with pytest.raises(SchedulerError, match="individual component") as caught:
        scheduler.cancel(f"{job_id}+1")
    assert "whole" in caught.value.hint
    scheduler.release(job_id)
    assert "Held" not in str(tasks(slurm, job_id))
    scheduler.cancel(job_id)
    wait_until(lambda: scheduler.statuses([job_id])[job_id].state == "CANCELLED", 20, "its end")
    assert scheduler.statuses([job_id])[job_id].reason == ""  # not why it waited


@pytest.mark.slurm
def test_jobs_that_are_no_runs_are_found_by_whatever_id(slurm: SlurmCluster, tmp_path: Path) -> None:
    ledger = Ledger.open()
    array = submitted(slurm, tmp_path, "--array=1-5%1")
    parts = submitted(slurm, tmp_path, "-N1", ":", "-N2")
    running(slurm, tmp_path, array, "1")
    for text in (array, f"{array}_1", f"{array}_4", parts, f"{parts}+1"):
        found = outside.find(text, ledger)
        assert found is not None, text
        assert found.act(lambda *_: None).status.job_id == text
    for text in (f"{array}_6", f"{array}_", f"{parts}+2", "987654", f"{array}_[1-3]"):
        assert outside.find(text, ledger) is None, text
    held = outside.find(f"{array}_4", ledger)
    assert held is not None
    assert held.act(lambda there, job_id: there.hold(job_id)).status.reason == "JobHeldUser"
    slurm.run("scancel", parts)
    wait_until(lambda: not tasks(slurm, parts), 20, "its end")
    with pytest.raises(UserError, match=f"{parts} has ended .CANCELLED."):
        outside.find(parts, ledger)
    groups = queue.folded(queue.look(clusters.connect(), ledger).jobs)
    assert [g.key for g in groups] == [array]


@pytest.mark.slurm
def test_adopted_ones_follow_what_is_done_to_them(slurm: SlurmCluster, tmp_path: Path) -> None:
    from gpt_tune import jobs

    ledger, there = Ledger.open(), clusters.connect()
    array = submitted(slurm, tmp_path, "--array=1-3%1")
    running(slurm, tmp_path, array, "1")
    run = adopt.adopt(array, there, ledger)
    assert jobs.hold(run.run_id, ledger).state == "RUNNING"  # of it the rest is held
    assert "Held" in tasks(slurm, array)[f"{array}_2"]
    assert jobs.release(run.run_id, ledger).state == "RUNNING"
    assert jobs.requeue(run.run_id, ledger).state in ("COMPLETING", "PENDING", "RUNNING")
    assert jobs.cancel(run.run_id, ledger).state in (*ENDED, "COMPLETING")


# -- the rules alone ------------------------------------------------------------------------------
def job(job_id: str, state: State = "PENDING") -> JobStatus:
    return JobStatus(job_id, "x", state)


@pytest.mark.parametrize(
    ("ids", "words"),
    [(["7_3"], "7_3"), (["7_3", "7_4", "7_5"], "7_[3-5]"), (["7_1", "7_9", "7_10", "7_11"], "7_[1,9-11]")],
)
def test_tasks_together(ids: list[str], words: str) -> None:
    assert slurm_jobs.together([job(i) for i in ids]) == words


def test_what_is_held_of_a_job() -> None:
    part = [job("7_1", "RUNNING"), job("7_2"), job("7_3")]
    assert slurm_changes.waiting("7", part) == "7_[2-3]"
    assert slurm_changes.waiting("7", part[1:]) == "7"
    assert slurm_changes.waiting("7_3", part) == "7_3"
    assert slurm_changes.waiting("7_[2-3%1]", part) == "7_[2-3]"
    assert slurm_changes.waiting("8", [job("8+0"), job("8+1")]) == "8"
    for job_id, jobs_, words in (
        ("7_1", part, "RUNNING"), ("7_9", part, "not know"), ("8", [], "not know"), ("7", part[:1], "RUNNING"),
    ):  # fmt: skip
        with pytest.raises(SchedulerError, match=words):
            slurm_changes.waiting(job_id, jobs_)


@pytest.mark.parametrize(
    ("row", "job_id", "does"),
    [
        ("7", "7", True), ("7_3", "7", True), ("7_[4-9%2]", "7_5", True), ("7_[4-9%2]", "7_3", False),
        ("7_[1,5,9-20:2]", "7_11", True), ("7_[1,5,9-20:2]", "7_10", False), ("8+1", "8", True), ("8+1", "8+1", True),
        ("8+1", "8+0", False), ("77", "7", False), ("7_[1-3]", "77_2", False), ("7_[1-3]", "7_[1-3]", True),
        ("7_[1-3...", "7_2", False), ("7_[1-3]", "7_x", False),
    ],
)  # fmt: skip
def test_a_line_of_the_queue_stands_for(row: str, job_id: str, does: bool) -> None:
    assert slurm_jobs.stands_for(row, job_id) is does


def test_no_pattern_here_matches_everything() -> None:
    assert not re.fullmatch(slurm_jobs.WHY_IT_WAITED, "DependencyNeverSatisfied")
    assert not re.fullmatch(slurm_jobs.WHY_IT_WAITED, "")
