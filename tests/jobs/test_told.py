"""A run's own files tell that its job began or ended: then the state follows at once, and for few requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.jobs import polling
from gpt_tune.jobs.pacing import Budget, Pacer
from gpt_tune.ledger import JobRecord, Ledger, RunRecord
from gpt_tune.schedulers.base import State
from gpt_tune.workflows import foreign
from gpt_tune.workflows.asking import Asking
from gpt_tune.workflows.told import Told
from tests.cluster import SlurmCluster, wait_until
from tests.jobs.helpers import prepared, rendered, screens
from tests.jobs.test_find import PLAIN
from tests.jobs.test_good_guest import requests
from tui.engine import Engine

LATE_SECONDS = 3.0  # the promise is about two; the machine that runs the tests may be busy


def begun(run_id: str) -> tuple[Asking, Pacer]:
    """A look that has gone on for a while: the quick polls after the user's action are over."""
    pacer = Pacer()
    asking = Asking(run_id, pacer)
    for _ in range(polling.QUICK_POLLS):
        asking()
        pacer._due = 0.0
    pacer.polled(["PENDING"], files_tell=True)  # as if one of the background had just been made
    return asking, pacer


def shows(asking: Asking, state: State) -> None:
    """Within LATE_SECONDS."""

    def it_does() -> bool:
        status = asking()
        return status is not None and status.state == state

    wait_until(it_does, LATE_SECONDS, f"{state} on screen")


@pytest.mark.slurm
def test_beginning_and_end_of_a_waiting_job_show_at_once(slurm: SlurmCluster, tmp_path: Path) -> None:
    ledger = Ledger.open()
    spec = prepared(clusters.connect(), tmp_path / "runs")
    body = "for i in {1..600}; do [ -e go ] && exit 3; read -t 0.05 <> <(:) || :; done"
    record = jobs.submit(spec, rendered(spec, body, "--hold"), clusters.connect(), ledger)
    assert record.job_id is not None
    asking, pacer = begun(record.run_id)
    slurm.run("sdiag", "--reset")
    shows(asking, "PENDING")
    slurm.run("scontrol", "release", record.job_id)
    released = requests(slurm)
    wait_until(Path(record.run_dir, "started").exists, 20, "the job's first action")
    shows(asking, "RUNNING")
    assert ledger.get(record.run_id).node_list
    Path(record.run_dir, "go").touch()
    shows(asking, "FAILED")
    assert ledger.get(record.run_id).exit_code == 3
    # One request each, or one more where Slurm still tidied up at the first.
    assert requests(slurm) - released <= polling.REQUESTS_A_MINUTE - polling.POLL_REQUESTS
    assert pacer.calls_last_minute >= 2


@pytest.mark.slurm
def test_the_screens_show_it_too(slurm: SlurmCluster, tmp_path: Path) -> None:
    ledger = Ledger.open()
    spec = prepared(clusters.connect(), tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "exit 4", "--hold"), clusters.connect(), ledger)
    assert record.job_id is not None
    app = screens(Engine())
    app.start_polling()
    app.refresh_jobs()
    for _ in range(polling.QUICK_POLLS + 1):  # the last one is of the background
        app._due = 0.0
        app._tick()
    assert [r.state for r in app.records] == ["PENDING"]
    asked = app._asked_at
    slurm.run("scontrol", "release", record.job_id)
    wait_until(Path(record.run_dir, "exit_code").exists, 20, "the job's last action")

    def ended() -> bool:
        app._tick()
        return app.records[0].state == "FAILED"

    wait_until(ended, LATE_SECONDS, "the end on screen")
    assert app._asked_at == asked  # no poll of all runs
    assert app.records[0].exit_code == 4


@pytest.mark.slurm
def test_the_log_of_a_job_that_is_no_run_tells_that_it_began(slurm: SlurmCluster, tmp_path: Path) -> None:
    job_id = slurm.run(
        "sbatch", "--parsable", "--hold", "-o", f"{tmp_path}/log", "--wrap", "echo at work; sleep 600"
    )
    job = foreign.find(job_id)
    assert job is not None
    pacer = Pacer()
    source = foreign._source(clusters.connect(), job_id, job.log_paths, pacer)
    for _ in range(polling.QUICK_POLLS):
        pacer._due = 0.0
        status = source()
        assert status is not None
        assert status.state == "PENDING"
    pacer.polled(["PENDING"])
    assert source() is None  # nothing is due
    slurm.run("scontrol", "release", job_id)
    wait_until(
        lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text() != "", 20, "its first line"
    )
    begun = source()
    assert begun is not None
    assert begun.state == "RUNNING"
    assert source() is None
    assert pacer.calls_last_minute == polling.QUICK_POLLS + 1


@pytest.mark.slurm
def test_what_one_request_says_is_what_squeue_says(slurm: SlurmCluster, tmp_path: Path) -> None:
    scheduler = clusters.connect()
    name = "a b=c 'q\" NumNodes=9 ü"
    wrap = ("-o", f"{tmp_path}/log of %j", "--wrap", "sleep 600")
    plain = slurm.run(
        "sbatch", "--parsable", "-N2", "--gres=gpu:b200:4", "-J", name, "--comment=x State=1 y", *wrap
    )
    array = slurm.run("sbatch", "--parsable", "--array=1-9%2", "-N1", *wrap)
    parts = slurm.run("sbatch", "--parsable", "-N1", ":", "-N2", *wrap)
    held = slurm.run("sbatch", "--parsable", "--hold", *wrap)
    running = (plain, f"{array}_1", f"{array}_2", parts)
    wait_until(lambda: all(scheduler.statuses([i])[i].state == "RUNNING" for i in running), 20, "all at work")
    for job_id in (plain, f"{array}_2", array, parts, held):
        slurm.run("sdiag", "--reset")
        one = scheduler.one(job_id)
        assert requests(slurm) == polling.ONE_JOB_REQUESTS, job_id
        other = scheduler.statuses([job_id])[job_id]
        assert one is not None
        # squeue fills in some of a log's name; a held job's start is a guess.
        assert replace(one, log_paths=(), expected_start=None) == replace(
            other, log_paths=(), expected_start=None
        )
    assert scheduler.one("987654") is None
    slurm.run("scancel", plain)
    wait_until(lambda: scheduler.statuses([plain])[plain].state == "CANCELLED", 20, "the end")
    assert scheduler.one(plain) == replace(
        scheduler.statuses([plain])[plain],
        log_paths=scheduler.one(plain).log_paths,  # type: ignore[union-attr]
    )


# -- the rules alone ------------------------------------------------------------------------------
class Folder:
    """A run's files, and a clock."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, float]] = {"/r/log": (0, 0.0)}
        self.now = 0.0
        self.told = Told(self.files.get, lambda: self.now)

    def run(self, state: State = "PENDING", **changes: object) -> RunRecord:
        record = replace(
            PLAIN,
            run_dir="/r",
            log_paths=("/r/log",),
            phase="submitted",
            state=state,
            job_ids=("7",),
            scheduler="slurm",
        )
        return replace(record, **changes)  # type: ignore[arg-type]

    def news(self, record: RunRecord) -> bool:
        return bool(self.told.news([record]))


@pytest.mark.parametrize(("file", "mark"), [("/r/started", (60, 1.0)), ("/r/log", (10, 1.0))])
def test_a_beginning(file: str, mark: tuple[int, float]) -> None:
    there = Folder()
    assert not there.news(there.run())
    there.files[file] = mark
    assert there.news(there.run())
    there.told.asked(there.run("RUNNING"))
    assert not there.news(there.run("RUNNING"))
    assert there.told.tells(there.run("RUNNING"))


def test_somebody_else_has_asked_already() -> None:
    there = Folder()
    there.news(there.run())
    there.files["/r/started"] = (60, 1.0)
    assert not there.news(there.run("RUNNING"))
    there.files["/r/log"] = (999, 2.0)  # a running job's log grows
    assert not there.news(there.run("RUNNING"))


def test_an_end_is_asked_about_again_while_slurm_tidies_up_but_not_for_ever() -> None:
    there = Folder()
    there.news(there.run("RUNNING"))
    there.files["/r/exit_code"] = (2, 1.0)
    asked: list[float] = []
    for tenth in range(600):
        there.now = tenth / 10
        if there.news(there.run("RUNNING")):
            asked.append(there.now)
            there.told.asked(there.run("COMPLETING"))
    assert asked[0] > 0  # not in the very moment of the script's last action
    assert 3 <= len(asked) <= 6
    assert asked[1] - asked[0] <= 1.1
    there.files["/r/exit_code"] = (2, 70.0)  # as long: a second attempt's
    there.news(there.run("RUNNING"))
    there.now += 1
    assert there.news(there.run("RUNNING"))
    there.told.asked(there.run("COMPLETED", phase="ended"))
    assert not there.news(there.run("COMPLETED", phase="ended"))


def test_a_requeued_job_begins_anew() -> None:
    """The files of its first attempt tell nothing of the second."""
    there = Folder()
    there.files |= {"/r/started": (60, 1.0), "/r/log": (500, 2.0), "/r/exit_code": (4, 3.0)}
    assert not there.news(there.run())
    there.files["/r/started"] = (120, 9.0)
    assert there.news(there.run())


def test_what_files_cannot_tell() -> None:
    there = Folder()
    there.files.clear()
    there.news(there.run())
    assert not there.told.tells(there.run())  # a folder that is not seen from here
    there.files["/r/log"] = (0, 0.0)
    adopted = there.run(tags=("adopted",))
    there.news(adopted)
    assert not there.told.tells(adopted)  # its script leaves no exit code
    for other in (there.run(job_ids=()), there.run(scheduler="local"), there.run("COMPLETED", phase="ended")):
        there.files["/r/started"] = (1, there.now)
        assert not there.news(other)


@pytest.mark.parametrize("told", [True, False])
def test_the_budget_of_a_minute(told: bool) -> None:
    """However much files tell: never more than the promise, and a poll of all runs is never late for it."""
    now = [0.0]
    budget = Budget(lambda: now[0])
    pacer = Pacer(lambda: now[0], lambda: 0.0, budget)
    sent: list[tuple[float, int]] = []
    polls: list[float] = []
    for second in range(600):
        now[0] = float(second)
        for number in (polling.POLL_REQUESTS, polling.ONE_JOB_REQUESTS) if told else ():
            if budget.allows(number, told=True):
                budget.spend(number, told=True)
                sent.append((now[0], number))
        if pacer.due:
            pacer.polled(["RUNNING"], calls=1, changed=True, files_tell=told)
            sent.append((now[0], polling.POLL_REQUESTS))
            polls.append(now[0])
    for at, _ in sent:
        assert sum(n for other, n in sent if at <= other < at + 60) <= polling.REQUESTS_A_MINUTE
    assert sum(n for _, n in sent) == 10 * polling.REQUESTS_A_MINUTE
    pace = polling.SLOW_SECONDS if told else polling.FAST_SECONDS
    assert polls == [n * pace for n in range(int(600 / pace))]


def test_a_beginning_and_an_end_within_one_minute_have_room_beside_the_poll_of_all() -> None:
    now = [0.0]
    pacer = Pacer(lambda: now[0], lambda: 0.0)
    for second in range(0, 600, 60):
        now[0] = float(second)
        assert pacer.due
        pacer.polled(["RUNNING"], calls=1, changed=True, files_tell=True)
        for later in (3.0, 9.0):
            now[0] = second + later
            assert not pacer.due
            assert pacer.budget.allows(polling.ONE_JOB_REQUESTS, told=True)
            pacer.budget.spend(polling.ONE_JOB_REQUESTS, told=True)
        assert not pacer.budget.allows(polling.ONE_JOB_REQUESTS, told=True)
        assert pacer.max_age_seconds < polling.SLOW_SECONDS


def test_many_are_looked_at_in_turn() -> None:
    """Each within a few looks, and never all of them at once."""
    there = Folder()
    looked: list[str] = []

    def stat(path: str) -> tuple[int, float] | None:
        looked.append(path)
        return there.files.get(path)

    there.told = Told(stat, lambda: there.now)
    runs = [there.run(run_id=f"r{n}", run_dir=f"/r{n}", log_paths=()) for n in range(500)]
    for _ in range(16):
        looked.clear()
        there.told.news(runs)
        assert len(looked) <= 2 * 32
    there.files["/r417/started"] = (60, 1.0)
    found = []
    for _ in range(16):
        found += [r.run_id for r in there.told.news(runs)]
        there.told.news(runs[:2])  # others are asked about in between
    assert set(found) == {"r417"}
    there.files["/r3/started"] = (60, 1.0)
    assert [r.run_id for r in there.told.news(runs[:5])] == ["r3"]  # few: all of them


def test_many_at_once_are_one_poll(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpt_tune.workflows import live
    from gpt_tune.workflows import told as told_room

    ledger = Ledger.open()
    there = Folder()
    records = []
    for number in range(5):
        plain = there.run(run_id=f"r{number}", token=f"t{number}", run_dir=f"/r{number}", log_paths=())
        ledger.add(plain)
        ledger.put_job(JobRecord(plain.run_id, str(number), 0, "PENDING"))
        records.append(ledger.get(plain.run_id))
    there.told.news(records)
    for number in range(5):
        there.files[f"/r{number}/started"] = (60, 1.0)
    polls: list[float] = []
    monkeypatch.setattr(live, "refresh", lambda *_, max_age_seconds, **__: polls.append(max_age_seconds))
    budget = Budget(lambda: there.now)
    assert told_room.ask(there.told, records, None, ledger, budget)  # type: ignore[arg-type]
    assert polls == [polling.HINT_SHARED_SECONDS]
    there.now = 30.0
    assert not told_room.ask(there.told, records, None, ledger, budget)  # type: ignore[arg-type]
    assert len(polls) == 1
