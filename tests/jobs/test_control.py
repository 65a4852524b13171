"""Hold, release, requeue and signal: on a real cluster through the ledger, and what is refused in words."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.jobs import chains, control
from gpt_tune.ledger import Ledger
from gpt_tune.schedulers.local import Local
from tests.cluster import SlurmCluster, wait_until
from tests.jobs.helpers import prepared, refreshed_until, rendered
from tests.jobs.test_find import PLAIN

SAVES = "trap 'echo saved > saved; exit 0' USR1; touch ready; while :; do read -t 0.1 <> <(:) || :; done"


@pytest.mark.parametrize(
    ("text", "name"),
    [("usr1", "USR1"), ("SIGTERM", "TERM"), (str(int(signal.SIGUSR2)), "USR2"), (" int ", "INT")],
)
def test_names_of_signals(text: str, name: str) -> None:
    assert control.signal_name(text) == name


@pytest.mark.parametrize("text", ["", "USR3", "0", "-1", "99", "USR1;id", "--full", "SIGSIGUSR1", "1e1"])
def test_what_is_no_signal(text: str) -> None:
    with pytest.raises(UserError, match="signal"):
        control.signal_name(text)


@pytest.mark.slurm
def test_held_released_and_on_its_way(slurm: SlurmCluster, tmp_path: Path) -> None:
    scheduler, ledger = clusters.connect(), Ledger.open()
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "sleep 600", "--begin=now+1hour"), scheduler, ledger)
    held = control.hold(str(record.job_id), ledger)
    assert (held.state, held.reason) == ("PENDING", "JobHeldUser")
    assert "gpt-tune release" in jobs.reason_text(held)
    assert control.hold(record.run_id, ledger).reason == "JobHeldUser"  # again: fine
    released = control.release(record.run_id, ledger)
    assert released.reason != "JobHeldUser"


@pytest.mark.slurm
def test_requeued_it_is_the_same_run(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Back in the queue, later running again under the same job id; its end is not taken for the run's."""
    scheduler, ledger = clusters.connect(), Ledger.open()
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "sleep 600", "--requeue"), scheduler, ledger)
    running = refreshed_until(ledger, record.run_id, lambda r: r.state == "RUNNING")
    before = scheduler.calls
    back = control.requeue(record.run_id, ledger, scheduler)
    assert back.state in ("PENDING", "COMPLETING")
    assert scheduler.calls - before <= 3  # a ping, the request, and one look
    waiting = refreshed_until(ledger, record.run_id, lambda r: r.state == "PENDING")
    assert (waiting.job_ids, waiting.started_at, waiting.ended_at, waiting.exit_code) == (
        running.job_ids, None, None, None,
    )  # fmt: skip
    assert waiting.active


@pytest.mark.slurm
def test_save_and_stop(slurm: SlurmCluster, tmp_path: Path) -> None:
    scheduler, ledger = clusters.connect(), Ledger.open()
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, SAVES), scheduler, ledger)
    wait_until(Path(spec.run_dir, "ready").exists, 30, "the script")
    control.signal(record.run_id)
    ended = refreshed_until(ledger, record.run_id, lambda r: not r.active)
    assert (ended.state, Path(spec.run_dir, "saved").read_text()) == ("COMPLETED", "saved\n")
    for do in (control.hold, control.release, control.requeue, control.signal):
        with pytest.raises(UserError, match="has ended"):
            do(record.run_id, ledger=ledger)


@pytest.mark.slurm
def test_a_chain_whose_job_runs_holds_the_next_one(slurm: SlurmCluster, tmp_path: Path) -> None:
    scheduler, ledger = clusters.connect(), Ledger.open()
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "sleep 600"), scheduler, ledger, (chains.tag(3),))
    refreshed_until(ledger, record.run_id, lambda r: r.state == "RUNNING")
    after = slurm.run(
        "sbatch", "--parsable", "-o", "/dev/null", f"--dependency=afterany:{record.job_id}", "--wrap", "true"
    )
    folder = Path(spec.run_dir, "chain")
    folder.mkdir()
    (folder / f"next-{record.job_id}").write_text(f"{after}\n")
    control.hold(record.run_id, ledger)
    wait_until(lambda: scheduler.statuses([after])[after].reason == "JobHeldUser", 10, "the next job's hold")
    control.release(record.run_id, ledger)
    wait_until(lambda: scheduler.statuses([after])[after].reason == "Dependency", 10, "its release")


@pytest.mark.slurm
def test_a_controller_that_is_away_changes_nothing(slurm: SlurmCluster, tmp_path: Path) -> None:
    scheduler, ledger = clusters.connect(), Ledger.open()
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "sleep 600", "--hold"), scheduler, ledger)
    before = ledger.get(record.run_id)
    with slurm.controller_down():
        for do in (control.hold, control.release, control.requeue, control.signal):
            with pytest.raises(SchedulerError, match=r"does not answer|contact"):
                do(record.run_id, ledger=ledger)
        assert ledger.get(record.run_id) == before


def test_on_this_machine(home: Path, tmp_path: Path) -> None:
    scheduler, ledger = Local(), Ledger.open()
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, SAVES), scheduler, ledger)
    wait_until(Path(spec.run_dir, "ready").exists, 30, "the script")
    for do in (control.hold, control.requeue):
        with pytest.raises(SchedulerError, match="no queue"):
            do(record.run_id, ledger=ledger)
    control.signal(record.run_id, "USR1", ledger=ledger)
    ended = refreshed_until(ledger, record.run_id, lambda r: not r.active)
    assert (ended.state, Path(spec.run_dir, "saved").read_text()) == ("COMPLETED", "saved\n")


@pytest.mark.parametrize(
    "words",
    [
        "scancel: error: Kill job error on job id 7: Invalid job id specified",
        "scancel: error: Kill job error on job id 7: Job/step already completing or completed",
        "Requested operation not supported: can not be altered now",
        "",
    ],
)
def test_a_job_that_ended_since_it_was_last_looked_at(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    scheduler, ledger = Local(), Ledger.open()
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "touch ready"), scheduler, ledger)
    wait_until(Path(spec.run_dir, "exit_code").exists, 30, "its end")
    wait_until(
        lambda: scheduler.statuses([str(record.job_id)])[str(record.job_id)].state == "COMPLETED", 30, "it"
    )
    # As it was last heard of, by whoever looked before its end (submitting looks too, and may have seen it).
    ledger.update(record.run_id, phase="submitted", state="RUNNING", ended_at=None, exit_code=None)

    def refuse(*_: object) -> None:
        raise SchedulerError(words, "")

    if words:
        monkeypatch.setattr(Local, "signal", refuse)
    with pytest.raises(UserError, match=r"has ended \(COMPLETED\)"):
        control.signal(record.run_id, ledger=ledger)
    assert not ledger.get(record.run_id).active


def test_a_refusal_of_a_job_that_goes_on_stays_one(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, ledger = Local(), Ledger.open()
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, SAVES), scheduler, ledger)
    wait_until(Path(spec.run_dir, "ready").exists, 30, "the script")

    def refuse(*_: object) -> None:
        raise SchedulerError("Invalid job id specified", "")

    with monkeypatch.context() as patch:
        patch.setattr(Local, "signal", refuse)
        with pytest.raises(SchedulerError, match="Invalid job id"):
            control.signal(record.run_id, ledger=ledger)
    control.signal(record.run_id, "USR1", ledger=ledger)
    refreshed_until(ledger, record.run_id, lambda r: not r.active)


def test_a_run_without_a_known_job(home: Path) -> None:
    ledger = Ledger.open()
    ledger.add(replace(PLAIN, run_id="r1", token="t1", cluster="local", phase="lost", state="UNKNOWN"))
    with pytest.raises(SchedulerError, match="no known job"):
        control.requeue("r1", ledger)
