"""Submit exactly once, whatever dies: gpt-tune, sbatch, or the controller, at any moment."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.errors import UserError
from gpt_tune.jobs import reconciling, refreshing
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.recipes.base import JobSpec
from gpt_tune.schedulers import slurm_words
from gpt_tune.schedulers.base import Scheduler, SubmitUnknown
from gpt_tune.schedulers.local import Local
from tests.cluster import SlurmCluster, processes, wait_until
from tests.jobs.helpers import prepared, rendered

pytestmark = pytest.mark.slurm
# Children of a server without threads: forking this process, which may have some, is not safe.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])
_HELD = {"testbed": ("--hold",), "faraway": ("--hold",), "local": ()}


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Absence counts at the second look, so that tests need not wait."""
    monkeypatch.setattr(reconciling, "_SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("gpt_tune.schedulers.local._NEVER_STARTED_SECONDS", 10.0)


def killed_while_submitting(
    spec: JobSpec, kill_after: float | None = None, cluster: str = "testbed", moment: str = ""
) -> int:
    """Submit in a process that is ended at some moment, without a chance to tidy up; its exit code.

    kill_after: seconds from its start. moment: a function (dotted name) in whose place it dies.
    """
    child = _FORKS.Process(target=_submit, args=(spec, kill_after, cluster, moment, dict(os.environ)))
    child.start()
    child.join(60)
    assert child.exitcode is not None
    return -child.exitcode


def _submit(
    spec: JobSpec, kill_after: float | None, cluster: str, moment: str, variables: dict[str, str]
) -> None:
    os.environ.clear()
    os.environ.update(variables)
    if moment:
        module, name = moment.rsplit(".", 1)
        setattr(importlib.import_module(module), name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    if kill_after is not None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process as SIGKILL would
        signal.setitimer(signal.ITIMER_REAL, kill_after)
    jobs.submit(spec, rendered(spec, "true", *_HELD[cluster]), clusters.connect(cluster), Ledger.open())


def sbatch_instead(slurm: SlurmCluster, home: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program in front of sbatch. REAL, PID (the controller's) are filled in; $PPID is gpt-tune."""
    folder = home / "fake"
    folder.mkdir(exist_ok=True)
    real = next(p for d in slurm.env["PATH"].split(":") if (p := Path(d, "sbatch")).exists())
    text = script.replace("REAL", str(real)).replace("PID_OF_CONTROLLER", str(slurm.controller_pid))
    (folder / "sbatch").write_text(f"#!/bin/bash\n{text}\n")
    (folder / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{slurm.env['PATH']}")


def older_than_a_run(scheduler: Scheduler) -> None:
    """Wait until the controller, which a test before may have started anew, counts as older than a run made now."""

    def older() -> bool:
        began = scheduler.running_since()
        return began is None or slurm_words.epoch(began) + 1 < time.time()

    wait_until(older, 10, "a second of the controller's life")


def jobs_with(slurm: SlurmCluster, token: str) -> list[str]:
    rows = slurm.run("squeue", "-h", "-t", "all", "-o", "%i %k").splitlines()
    return [row.split()[0] for row in rows if token in row]


def settled(slurm: SlurmCluster, spec: JobSpec) -> RunRecord | None:
    """The run once its outcome is decided; None when the ledger never heard of it."""
    ledger = Ledger.open()

    def decided() -> bool:
        jobs.refresh(ledger)
        runs = [r for r in ledger.runs() if r.run_id == spec.run_id]
        return all(r.job_id or r.phase in ("ended", "lost") for r in runs)

    wait_until(decided, 40, "a decision about the run")
    jobs.refresh(ledger)
    return next((r for r in ledger.runs() if r.run_id == spec.run_id), None)


def check(slurm: SlurmCluster, spec: JobSpec) -> RunRecord | None:
    """At most one job, and the ledger knows it (or says that it does not know)."""
    record = settled(slurm, spec)
    found = jobs_with(slurm, spec.token)
    assert len(found) <= 1
    if record is None or record.job_id is None:
        assert found == []
        assert record is None or record.state in ("FAILED", "UNKNOWN")
    elif not found:  # Slurm itself lost a job it had taken: killed, its controller had not saved it yet
        assert (record.state, record.reason) == ("UNKNOWN", refreshing.FORGOTTEN)
    else:
        assert found == [record.job_id]
    return record


BEFORE = "kill -9 $PPID; exit 1"
BEFORE_BUT_SENT = 'kill -9 $PPID; exec REAL "$@"'
AFTER = 'out=$(REAL "$@"); kill -9 $PPID; echo "$out"'
NO_ANSWER = (
    'REAL "$@" >/dev/null\n'
    'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1'
)
NEVER_SENT = (
    'echo "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received" >&2; exit 1'
)
SBATCH_KILLED = 'REAL "$@" >/dev/null; kill -9 $$'
SBATCH_SILENT = 'REAL "$@" >/dev/null; exit 1'
NO_NUMBER = 'REAL "$@" >/dev/null; echo Thank you.'


@pytest.mark.parametrize(
    ("script", "exists"),
    [(BEFORE, False), (BEFORE_BUT_SENT, True), (AFTER, True)],
    ids=["before", "sent", "after"],
)
def test_killed_around_sbatch(
    slurm: SlurmCluster,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    exists: bool,
) -> None:
    older_than_a_run(clusters.connect())
    spec = prepared(clusters.connect(), tmp_path / "runs")
    sbatch_instead(slurm, home, monkeypatch, script)
    assert killed_while_submitting(spec) == signal.SIGKILL
    record = check(slurm, spec)
    assert record is not None
    assert (record.job_id is not None) is exists
    if not exists:
        assert (record.state, record.reason) == ("FAILED", reconciling.NEVER_SUBMITTED)
        assert "submitted again" in jobs.reason_text(record)


@pytest.mark.parametrize(
    ("script", "exists"),
    [(NO_ANSWER, True), (NO_NUMBER, True), (SBATCH_KILLED, True), (SBATCH_SILENT, True), (NEVER_SENT, False)],
)
def test_an_answer_that_got_lost(
    slurm: SlurmCluster,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    exists: bool,
) -> None:
    spec = prepared(clusters.connect(), tmp_path / "runs")
    sbatch_instead(slurm, home, monkeypatch, script)
    ledger = Ledger.open()
    if exists:
        assert jobs.submit(spec, rendered(spec, "true", "--hold"), clusters.connect(), ledger).job_id
    else:
        with pytest.raises(SubmitUnknown, match="broke"):
            jobs.submit(spec, rendered(spec), clusters.connect(), ledger)
        assert ledger.get(spec.run_id).reason == reconciling.LOST_REASON
    check(slurm, spec)


@pytest.mark.parametrize(
    "moment",
    [
        "gpt_tune.rendering.write",
        "gpt_tune.jobs.submitting._request",
        "gpt_tune.jobs.states.accepted",
        "gpt_tune.jobs.logs.touch",
    ],
)
def test_killed_between_the_steps(slurm: SlurmCluster, tmp_path: Path, moment: str) -> None:
    spec = prepared(clusters.connect(), tmp_path / "runs")
    assert killed_while_submitting(spec, moment=moment) == signal.SIGKILL
    record = check(slurm, spec)
    assert record is not None
    assert (record.job_id is not None) is (moment.split(".")[-1] in ("accepted", "touch"))


def test_the_controller_freezes_while_it_is_asked(
    slurm: SlurmCluster, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch outlives the killed gpt-tune, and its request is taken when the controller thaws."""
    spec = prepared(clusters.connect(), tmp_path / "runs")
    sbatch_instead(slurm, home, monkeypatch, 'kill -STOP PID_OF_CONTROLLER; kill -9 $PPID; exec REAL "$@"')
    pid = slurm.controller_pid
    assert pid is not None
    try:
        assert killed_while_submitting(spec) == signal.SIGKILL
        scheduler = clusters.connect()
        # The stand-in has yet to become sbatch: a process has no words of its own while it changes.
        wait_until(lambda: scheduler.still_submitting(spec.run_dir), 5, "sbatch is at work")
        jobs.refresh(Ledger.open(), scheduler)
        assert Ledger.open().get(spec.run_id).phase == "intent"
    finally:
        os.kill(pid, signal.SIGCONT)
    record = check(slurm, spec)
    assert record is not None
    assert record.job_id is not None


@pytest.mark.parametrize("taken", [True, False])
def test_the_controller_dies_before_it_answers(
    slurm: SlurmCluster, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    """A job it had taken is found after its restart; without one nobody can know, and the user decides."""
    spec = prepared(clusters.connect(), tmp_path / "runs")
    ask = 'REAL "$@" >/dev/null; ' if taken else ""
    sbatch_instead(slurm, home, monkeypatch, f"{ask}kill -TERM PID_OF_CONTROLLER; kill -9 $PPID; exit 1")
    assert killed_while_submitting(spec) == signal.SIGKILL
    wait_until(lambda: not slurm.is_up(), 20, "the controller's end")
    jobs.refresh(Ledger.open())
    assert Ledger.open().poll("testbed").failures == 1
    assert Ledger.open().get(spec.run_id).phase == "intent"
    slurm.stop_controller()
    slurm.start_controller()
    record = check(slurm, spec)
    assert record is not None
    if taken:
        assert record.job_id is not None
    else:
        assert (record.phase, record.state, record.reason) == ("lost", "UNKNOWN", "unknown: do not resubmit")
        assert not record.active  # no poll goes on for its sake
        with pytest.raises(UserError, match="no known job"):
            jobs.cancel(spec.run_id)


def moments(spec: JobSpec, cluster: str, seed: int) -> Callable[[], float]:
    """Random moments of a submission, as long as one (not interrupted) takes here and now."""
    chance = random.Random(seed)
    begin = time.monotonic()
    assert killed_while_submitting(spec, None, cluster) == 0
    whole = time.monotonic() - begin
    return lambda: chance.uniform(0.001, whole)


def test_twenty_random_moments_of_a_local_submission(home: Path, tmp_path: Path) -> None:
    """The same promise on this machine: a job of an interrupted submission is in the ledger, and only once."""
    seed = random.randrange(10**6)
    moment = moments(prepared(Local(), tmp_path / "runs"), "local", seed)
    for i in range(20):
        spec = prepared(Local(), tmp_path / "runs")
        assert killed_while_submitting(spec, moment(), "local") in (signal.SIGALRM, 0), (
            f"seed {seed}, kill {i}"
        )
        wait_until(lambda: all(not r.active for r in jobs.refresh(Ledger.open())), 60, "the end of all runs")
        started = Path(spec.run_dir, "started")
        times = len(started.read_text().splitlines()) if started.exists() else 0
        known = [r for r in Ledger.open().runs() if r.run_id == spec.run_id]
        assert times <= 1, f"seed {seed}, kill {i}"
        if times:
            assert known[0].job_id is not None
            assert known[0].state == "COMPLETED"


# What the controller does while gpt-tune is killed at a random moment of a submission.
CONDITIONS = ("up", "down", "slow", "dying")
# The controller takes the job and dies before it answers.
DYING = 'REAL "$@" >/dev/null; kill -KILL PID_OF_CONTROLLER; sleep 0.2; exit 1'


@contextmanager
def disturbed(slurm: SlurmCluster, condition: str, after: float) -> Iterator[None]:
    """A controller that goes away (killed without saving its state) or freezes after some seconds, and comes back."""
    pid = slurm.controller_pid
    assert pid is not None
    number = {"down": signal.SIGKILL, "slow": signal.SIGSTOP}.get(condition)
    timer = threading.Timer(after, os.kill, (pid, number))
    if number is not None:  # else the one in front of sbatch does it, or nobody
        timer.start()
    try:
        yield
    finally:
        if number is not None:
            timer.cancel()
            timer.join()
        if condition == "slow":
            os.kill(pid, signal.SIGCONT)
        elif not processes.is_alive(pid):
            slurm.stop_controller()
            slurm.start_controller()


def random_kills(
    slurm: SlurmCluster, folder: Path, number: int, condition: str, cluster: str = "testbed"
) -> dict[str, int]:
    """Kill at `number` random moments of a submission; how the runs were found afterwards."""
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    moment = moments(prepared(clusters.connect(cluster), folder), cluster, seed)
    found: Counter[str] = Counter()
    for i in range(number):
        spec = prepared(clusters.connect(cluster), folder)
        kill_after = moment()
        with disturbed(slurm, condition, chance.uniform(0.0, kill_after)):
            status = killed_while_submitting(spec, kill_after, cluster)
        # An error of gpt-tune's own (the controller was away before anything was sent) ends the process with 1.
        assert status in (signal.SIGALRM, 0, -1), f"seed {seed}, {condition}, kill {i}: status {status}"
        try:
            record = check(slurm, spec)
        except (AssertionError, RuntimeError) as error:
            raise AssertionError(f"seed {seed}, {condition}, kill {i}: {error}") from error
        found[record.phase if record else "unheard"] += 1
    return found


def killed_under(
    slurm: SlurmCluster,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    condition: str,
    number: int,
) -> None:
    """The promise, with the controller in one condition; a dying one needs a new sbatch for each submission."""
    if condition != "dying":
        random_kills(slurm, tmp_path / "runs", number, condition)
        return
    for _ in range(number):
        with monkeypatch.context() as patch:
            sbatch_instead(slurm, home, patch, DYING)
            random_kills_dying(slurm, tmp_path / "runs")


def random_kills_dying(slurm: SlurmCluster, folder: Path) -> None:
    """One submission whose controller dies between taking the job and saying so; gpt-tune is killed at random, too."""
    seed = random.randrange(10**6)
    spec = prepared(clusters.connect(), folder)
    with disturbed(slurm, "dying", 0.0):
        status = killed_while_submitting(spec, random.Random(seed).uniform(0.05, 1.5))
        wait_until(lambda: not clusters.connect().still_submitting(spec.run_dir), 90, "sbatch's end")
    assert status in (signal.SIGALRM, 0, -1), f"seed {seed}: status {status}"
    check(slurm, spec)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_twenty_random_moments(
    slurm: SlurmCluster, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    """Five with the controller in each condition."""
    killed_under(slurm, home, tmp_path, monkeypatch, condition, 5)


@pytest.mark.slow
@pytest.mark.parametrize("condition", CONDITIONS)
def test_two_hundred_random_moments(
    slurm: SlurmCluster, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    killed_under(slurm, home, tmp_path, monkeypatch, condition, 50)
