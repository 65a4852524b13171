"""A good guest: how often the controller is asked, counted by the controller itself (sdiag) over simulated time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpt_tune import jobs
from gpt_tune.jobs import polling
from gpt_tune.jobs.pacing import Pacer
from gpt_tune.ledger import JobRecord, Ledger, RunRecord
from gpt_tune.workflows.asking import Asking
from tests.cluster import SlurmCluster
from tests.jobs.helpers import screens
from tests.jobs.test_find import PLAIN

MINUTES = 10
# What slurmd and sdiag themselves ask of the controller.
_NOT_OURS = {
    "REQUEST_STATS_INFO", "MESSAGE_NODE_REGISTRATION_STATUS", "MESSAGE_EPILOG_COMPLETE", "REQUEST_COMPLETE_PROLOG",
    "REQUEST_COMPLETE_BATCH_SCRIPT", "REQUEST_STEP_COMPLETE",
}  # fmt: skip


class SimulatedTime:
    """Seconds that pass only when told to; the ledger's stamps follow it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._begin = time.time()
        self.now = 0.0
        monkeypatch.setattr("gpt_tune.jobs.clock.time", SimpleNamespace(time=lambda: self._begin + self.now))

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> SimulatedTime:
    return SimulatedTime(monkeypatch)


def requests(slurm: SlurmCluster) -> int:
    """Requests of all commands since the last reset."""
    said = slurm.run("sdiag").split("by message type")[1].split("by user")[0]
    rows = re.findall(r"^\s*(\w+)\s*\(\s*\d+\)\s+count:(\d+)", said, re.MULTILINE)
    return sum(int(count) for name, count in rows if name not in _NOT_OURS)


def waiting(slurm: SlurmCluster, ledger: Ledger, folder: Path, number: int) -> list[RunRecord]:
    """That many runs whose jobs wait, held; they are tasks of one array, which is how 500 come quickly."""
    array = slurm.run(
        "sbatch",
        "--parsable",
        "--hold",
        "--comment=gpt-tune-7",
        f"--array=1-{number}",
        "-o",
        "/dev/null",
        "--wrap",
        "true",
    )
    found = []
    with ledger.batch():
        for task in range(1, number + 1):
            run_dir = folder / f"run-{task}"
            run_dir.mkdir(parents=True)
            record = replace(
                PLAIN, run_id=f"r{task:04d}", token=f"gpt-tune-7-{task}", phase="submitted", state="PENDING",
                run_dir=str(run_dir),
            )  # fmt: skip
            ledger.add(record)
            ledger.put_job(JobRecord(record.run_id, f"{array}_{task}", 0, "PENDING"))
            found.append(ledger.get(record.run_id))
    return found


def by_the_minute(slurm: SlurmCluster, clock: SimulatedTime, look: Callable[[int], object]) -> list[int]:
    """What the controller was asked in each of ten minutes; look: called each second."""
    counts = []
    for minute in range(MINUTES):
        slurm.run("sdiag", "--reset")
        for second in range(60):
            clock.now = minute * 60.0 + second
            look(minute * 60 + second)
        counts.append(requests(slurm))
    return counts


@pytest.mark.slurm
@pytest.mark.parametrize("number", [1, 500])
def test_while_everything_changes(
    slurm: SlurmCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    simulated: SimulatedTime,
    number: int,
) -> None:
    """The worst case: something is new all the time, and the run's files say so every ten seconds."""
    monkeypatch.setattr(polling, "SETTLED_AFTER_SECONDS", float("inf"))
    ledger = Ledger.open()
    record, *_ = waiting(slurm, ledger, tmp_path / "runs", number)
    asking = Asking(record.run_id, Pacer(simulated))
    for _ in range(polling.QUICK_POLLS):  # the first look, which is the user's
        asking()
        simulated.now += polling.QUICK_SECONDS
    simulated.now = 0.0

    def look(second: int) -> None:
        if second % 10 == 0:
            Path(record.run_dir, "started").write_text("x" * (1 + second))
        status = asking()
        assert status is not None
        assert status.state == "PENDING"

    counts = by_the_minute(slurm, simulated, look)
    assert max(counts) <= 4, counts
    assert sum(counts) >= MINUTES  # it did ask
    assert ledger.poll("testbed").failures == 0
    assert all(r.seen_at for r in ledger.runs())  # every run was in the answer


@pytest.mark.slurm
def test_two_of_one_user_share_the_answers(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simulated: SimulatedTime
) -> None:
    monkeypatch.setattr(polling, "SETTLED_AFTER_SECONDS", float("inf"))
    ledger = Ledger.open()
    first, second, third = waiting(slurm, ledger, tmp_path / "runs", 3)
    askings = [Asking(r.run_id, Pacer(simulated)) for r in (first, second, third)]
    for number, asking in enumerate(askings):  # begun one after the other
        for _ in range(polling.QUICK_POLLS):
            simulated.now += 7.0 * number + polling.QUICK_SECONDS
            asking()
    begun = simulated.now
    counts = []
    for minute in range(MINUTES):
        slurm.run("sdiag", "--reset")
        for second_ in range(60):
            simulated.now = begun + minute * 60.0 + second_
            if second_ % 10 == 0:  # the worst case: the files of each say all the time that something is new
                for record in (first, second, third):
                    Path(record.run_dir, "started").write_text("x" * (1 + minute * 60 + second_))
            for asking in askings:
                asking()
        counts.append(requests(slurm))
    assert max(counts) <= 4, counts


@pytest.mark.slurm
def test_steady_and_idle(slurm: SlurmCluster, tmp_path: Path, simulated: SimulatedTime) -> None:
    """Once a minute when nothing changes; never once all has ended."""
    ledger = Ledger.open()
    record, *_ = waiting(slurm, ledger, tmp_path / "runs", 1)
    asking = Asking(record.run_id, Pacer(simulated))
    counts = by_the_minute(slurm, simulated, lambda _: asking())
    assert set(counts[4:]) == {2}, counts  # squeue asks for jobs and for partitions
    jobs.cancel(record.run_id, ledger)
    clock = simulated.now
    simulated.now = clock + 120
    asking()
    assert asking() is not None
    assert not ledger.get(record.run_id).active
    slurm.run("sdiag", "--reset")
    for _ in range(600):
        simulated.now += 1.0
        asking()
    assert requests(slurm) == 0


@pytest.mark.slurm
def test_after_something_the_user_did(slurm: SlurmCluster, tmp_path: Path, simulated: SimulatedTime) -> None:
    ledger = Ledger.open()
    record, *_ = waiting(slurm, ledger, tmp_path / "runs", 1)
    pacer = Pacer(simulated)
    asking = Asking(record.run_id, pacer)
    for _ in range(60):
        simulated.now += 1.0
        asking()
    slurm.run("sdiag", "--reset")
    jobs.release(record.run_id, ledger)  # a ping, the request itself, one look
    done, live = requests(slurm), ledger.get(record.run_id).active
    pacer.acted()
    for _ in range(25):
        simulated.now += 1.0
        asking()
    assert int(live) <= requests(slurm) - done <= 2 * polling.QUICK_POLLS
    assert bool(pacer.calls_last_minute) or not live  # none is due once the released job has ended


@pytest.mark.slurm
@pytest.mark.parametrize("number", [1, 500])
def test_the_poller_of_the_screens(
    slurm: SlurmCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    simulated: SimulatedTime,
    number: int,
) -> None:
    """The same count through what the full-screen program runs, with a screen that shows states all the time."""
    from tui import poller
    from tui.engine import Engine

    monkeypatch.setattr(poller, "monotonic", simulated)
    monkeypatch.setattr(polling, "SETTLED_AFTER_SECONDS", float("inf"))
    ledger = Ledger.open()
    first, *_ = waiting(slurm, ledger, tmp_path / "runs", number)

    app = screens(Engine(simulated))
    app.start_polling()
    app.refresh_jobs()
    for _ in range(polling.QUICK_POLLS + 1):
        app._tick()
        simulated.now += polling.QUICK_SECONDS
    begun = simulated.now
    counts = []
    for minute in range(MINUTES):
        slurm.run("sdiag", "--reset")
        for second in range(60):
            simulated.now = begun + minute * 60.0 + second
            if second % 10 == 0:  # the worst case: the files say all the time that something is new
                Path(first.run_dir, "started").write_text("x" * (1 + minute * 60 + second))
            app._tick()
        counts.append(requests(slurm))
    assert max(counts) == 4, counts
    assert any("in the last minute" in text for text, _ in app.poll_words())


# -- the rules alone ------------------------------------------------------------------------------
def pacer_at(clock: Callable[[], float]) -> Pacer:
    pacer = Pacer(clock, lambda: 0.0)
    pacer.acted()
    return pacer


def test_hints_do_not_break_the_pace() -> None:
    now = [0.0]
    pacer = pacer_at(lambda: now[0])
    polls: list[float] = []
    for second in range(1200):
        now[0] = float(second)
        pacer.hinted()
        if pacer.due:
            polls.append(now[0])
            pacer.polled(["RUNNING"], calls=1, changed=True)
    quick, background = polls[:3], polls[3:]
    assert quick == [0.0, 2.0, 4.0]
    for at in background:
        assert sum(at <= other < at + 60 for other in background) <= polling.POLLS_A_MINUTE


def test_a_hint_brings_the_next_poll_forward() -> None:
    now = [0.0]
    pacer = Pacer(lambda: now[0], lambda: 0.0)
    pacer.polled(["RUNNING"])
    now[0] = 5.0
    assert not pacer.due
    pacer.hinted()
    assert pacer.due
    assert pacer.max_age_seconds < polling.FAST_SECONDS


def test_errors_back_off_and_are_told() -> None:
    now = [0.0]
    pacer = Pacer(lambda: now[0], lambda: 1.0)
    waits = []
    for _ in range(6):
        pacer.polled(["RUNNING"], failed=True)
        assert pacer.due_at is not None
        waits.append(pacer.due_at - now[0])
        now[0] = pacer.due_at
    assert waits == sorted(waits)
    assert waits[-1] == 150.0
    assert pacer.silent_seconds > 300
    pacer.polled(["RUNNING"])
    assert pacer.silent_seconds == 0.0


def test_nothing_active_is_never_due_again() -> None:
    now = [0.0]
    pacer = pacer_at(lambda: now[0])
    pacer.polled(["COMPLETED", "FAILED"])
    now[0] = 1e9
    pacer.hinted()
    assert not pacer.due
    pacer.acted()  # the user wants to know
    assert pacer.due


def test_the_rate_forgets_after_a_minute() -> None:
    now = [0.0]
    pacer = Pacer(lambda: now[0])
    pacer.polled(["RUNNING"], calls=2)
    assert pacer.calls_last_minute == 2
    now[0] = polling.WINDOW_SECONDS
    assert pacer.calls_last_minute == 0


def test_somebody_else_is_asking_just_now(slurm_free: Ledger) -> None:
    """Another gpt-tune wrote that it asks: this one waits for that answer, but not for ever."""
    ledger = slurm_free
    from gpt_tune.jobs import clock, refreshing
    from gpt_tune.ledger import Poll

    assert refreshing._is_asking(Poll("c", clock.now(), None))
    assert not refreshing._is_asking(Poll("c", clock.now(), clock.now()))
    assert not refreshing._is_asking(Poll("c", "2026-01-01T00:00:00Z", None))
    assert not refreshing._is_asking(Poll("c", clock.now(), None, failures=1))
    assert ledger.poll("c").asked_at is None


@pytest.fixture
def slurm_free(home: Path) -> Ledger:
    return Ledger.open()
