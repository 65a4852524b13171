"""Submitting: what is written, what is taken back, and that nothing is ever submitted twice."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.errors import EXIT_SCHEDULER, SchedulerError, UserError
from gpt_tune.jobs import reconciling
from gpt_tune.ledger import Ledger
from gpt_tune.schedulers.base import Scheduler, SubmitUnknown
from gpt_tune.schedulers.local import Local
from tests.cluster import SlurmCluster, wait_until
from tests.jobs.helpers import prepared, refreshed_until, rendered


@pytest.fixture(params=[pytest.param("slurm", marks=pytest.mark.slurm), "local"])
def scheduler(request: pytest.FixtureRequest) -> Scheduler:
    request.getfixturevalue("slurm" if request.param == "slurm" else "home")
    return clusters.connect("testbed" if request.param == "slurm" else "local")


@pytest.fixture
def ledger(home: Path) -> Ledger:
    return Ledger.open()


def test_the_whole_way(scheduler: Scheduler, ledger: Ledger, tmp_path: Path) -> None:
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec), scheduler, ledger, tags=("trial",))
    assert record.job_id is not None
    assert record.name == "trial"
    assert record.phase in ("submitted", "ended")
    assert record.state == "PENDING" or scheduler.kind == "local"  # which has started it by now
    assert (record.plan, record.prediction and record.prediction["step_seconds"]) == (None, 1.5)
    assert 'recipe = "smoke"' in record.profile
    (log,) = jobs.resolved_log_paths(record)
    assert log == f"{spec.run_dir}/logs/trial-{record.job_id}.out"
    assert Path(log).exists()  # a follower may open it at once
    done = refreshed_until(ledger, record.run_id, lambda r: not r.active, scheduler)
    assert (done.state, done.exit_code, done.phase) == ("COMPLETED", 0, "ended")
    assert None not in (done.submitted_at, done.started_at, done.ended_at)
    assert Path(log).read_text() == "hello\n"
    started = json.loads(Path(spec.run_dir, "started").read_text())
    assert started["job_id"] == record.job_id
    assert [(j.job_id, j.state, j.exit_code) for j in ledger.jobs(record.run_id)] == [
        (record.job_id, "COMPLETED", 0)
    ]


def test_the_run_folder_is_private(scheduler: Scheduler, ledger: Ledger, tmp_path: Path) -> None:
    spec = prepared(scheduler, tmp_path / "new" / "runs")
    jobs.submit(spec, rendered(spec), scheduler, ledger)
    modes = {
        p.relative_to(tmp_path).as_posix(): stat.S_IMODE(p.stat().st_mode)
        for p in Path(tmp_path, "new").rglob("*")
    }
    base = f"new/runs/{spec.run_id}"
    assert modes["new/runs"] == modes[base] == modes[f"{base}/logs"] == modes[f"{base}/inner"] == 0o700
    assert (modes[f"{base}/job.sh"], modes[f"{base}/inner/data.json"]) == (0o700, 0o600)


def test_a_site_may_share_run_folders_with_a_group(ledger: Ledger, tmp_path: Path) -> None:
    group = os.popen("id -gn").read().strip()
    spec = prepared(Local(), tmp_path / "runs", group=group)
    jobs.submit(spec, rendered(spec), Local(), ledger)
    assert stat.S_IMODE(Path(spec.run_dir).stat().st_mode) == 0o2770
    assert stat.S_IMODE(Path(spec.run_dir, "inner/data.json").stat().st_mode) == 0o660
    spec = prepared(Local(), tmp_path / "runs", group="no-such-group")
    with pytest.raises(UserError, match="no-such-group"):
        jobs.submit(spec, rendered(spec), Local(), ledger)
    assert not Path(spec.run_dir).exists()


@pytest.mark.slurm
def test_64_tasks_over_8_nodes(slurm: SlurmCluster, ledger: Ledger, tmp_path: Path) -> None:
    scheduler = clusters.connect()
    spec = prepared(scheduler, tmp_path / "runs", gpus=64)
    body = "srun bash -c 'echo rank $SLURM_PROCID on $SLURMD_NODENAME'"
    record = jobs.submit(spec, rendered(spec, body), scheduler, ledger)
    done = refreshed_until(ledger, record.run_id, lambda r: not r.active)
    assert (done.state, done.nodes, done.gpus, done.node_list) == ("COMPLETED", 8, 64, "b200-[1-8]")
    lines = Path(jobs.resolved_log_paths(done)[0]).read_text().splitlines()
    assert len([line for line in lines if line.startswith("rank")]) == 64
    assert len({line.split()[-1] for line in lines if line.startswith("rank")}) == 8


@pytest.mark.slurm
@pytest.mark.parametrize("options", [("--partition=nosuch",), ("--gres=gpu:b200:9",), ("--no-such-option",)])
def test_a_refusal_takes_everything_back(
    slurm: SlurmCluster, ledger: Ledger, tmp_path: Path, options: tuple[str, ...]
) -> None:
    scheduler = clusters.connect()
    spec = prepared(scheduler, tmp_path / "runs")
    with pytest.raises(SchedulerError, match="refused"):
        jobs.submit(spec, rendered(spec, "true", *options), scheduler, ledger)
    assert ledger.runs() == []
    assert not Path(spec.run_dir).exists()
    assert slurm.run("squeue", "-h") == ""


@pytest.mark.slurm
def test_a_controller_that_is_down(slurm: SlurmCluster, ledger: Ledger, tmp_path: Path) -> None:
    scheduler = clusters.connect()
    spec = prepared(scheduler, tmp_path / "runs")
    with slurm.controller_down(), pytest.raises(SchedulerError, match="does not answer") as caught:
        jobs.submit(spec, rendered(spec), scheduler, ledger)
    assert caught.value.exit_code == EXIT_SCHEDULER
    assert not isinstance(caught.value, SubmitUnknown)
    assert ledger.runs() == []
    assert not (tmp_path / "runs").exists()


def test_a_run_folder_that_cannot_be_written(scheduler: Scheduler, ledger: Ledger, tmp_path: Path) -> None:
    spec = replace(prepared(scheduler, tmp_path / "runs"), run_dir="/proc/nope/run")
    with pytest.raises(UserError, match="/proc/nope"):
        jobs.submit(spec, rendered(spec), scheduler, ledger)
    assert ledger.runs() == []
    assert [j for j in scheduler.my_jobs() if spec.token in j.comment] == []


def test_files_of_others_in_the_run_folder_stay(ledger: Ledger, tmp_path: Path) -> None:
    spec = prepared(Local(), tmp_path / "runs")
    Path(spec.run_dir).mkdir(parents=True)
    Path(spec.run_dir, "notes.txt").write_text("mine")
    broken = replace(rendered(spec), script="missing.sh")
    with pytest.raises(UserError, match="does not exist"):
        jobs.submit(spec, broken, Local(), ledger)
    assert [p.name for p in Path(spec.run_dir).iterdir()] == ["notes.txt"]


def test_a_full_ledger_after_the_submission_is_told_with_the_job_id(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = prepared(Local(), tmp_path / "runs")

    def full(*_: object) -> None:
        raise UserError("The disk that holds the ledger is full.", "Free some space.")

    monkeypatch.setattr(Ledger, "put_job", full)
    with pytest.raises(UserError, match=r"Job local-1 is submitted, but .* is full"):
        jobs.submit(spec, rendered(spec), Local(), ledger)
    monkeypatch.undo()
    (record,) = ledger.runs()
    assert record.job_id is None
    # This process submitted it and lives; as soon as it does not, others look for the job.
    ledger.update(record.run_id, submitter_start="gone")
    assert refreshed_until(ledger, record.run_id, lambda r: r.job_id is not None).job_id == "local-1"


def test_an_interrupted_submission_is_looked_for(
    scheduler: Scheduler, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after the scheduler took the job and before we heard of it."""
    real = scheduler.submit

    def interrupted(request: object) -> str:
        real(request)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(scheduler, "submit", interrupted)
    spec = prepared(scheduler, tmp_path / "runs")
    with pytest.raises(KeyboardInterrupt):
        jobs.submit(spec, rendered(spec), scheduler, ledger)
    (record,) = ledger.runs()
    assert (record.job_id, record.state, record.reason) == (None, "UNKNOWN", reconciling.LOST_REASON)
    assert "do not submit it again" in jobs.reason_text(record)
    done = refreshed_until(ledger, record.run_id, lambda r: not r.active, scheduler)
    assert done.state == "COMPLETED"


@pytest.mark.slurm
def test_a_site_that_rewrites_comments(
    slurm: SlurmCluster, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is gone; the run folder still tells whose job it is."""
    scheduler = clusters.connect()
    spec = prepared(scheduler, tmp_path / "runs")
    real = scheduler.submit

    def rewritten(request: object) -> str:
        job_id = real(request)  # type: ignore[arg-type]
        slurm.run("scontrol", "update", f"jobid={job_id}", "comment=billing")
        raise SubmitUnknown("The answer got lost.")

    monkeypatch.setattr(scheduler, "submit", rewritten)
    record = jobs.submit(spec, rendered(spec, "true", "--hold"), scheduler, ledger)
    assert record.job_id == slurm.run("squeue", "-h", "-o", "%i")


def test_a_local_job_runs_when_submit_returns(ledger: Ledger, tmp_path: Path) -> None:
    spec = prepared(Local(), tmp_path / "runs")
    assert jobs.submit(spec, rendered(spec, "sleep 600"), Local(), ledger).state == "RUNNING"


def test_looking_at_jobs_does_not_load_what_makes_them() -> None:
    code = "import sys, gpt_tune.jobs, gpt_tune.clusters; print([m for m in ('numpy', 'jinja2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nobody_looks_for_what_is_still_being_submitted(
    scheduler: Scheduler, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another gpt-tune refreshes while this one waits for sbatch."""
    monkeypatch.setattr(reconciling, "_SETTLE_SECONDS", 0.0)
    seen = []
    real = scheduler.submit

    def slow(request: object) -> str:
        for _ in range(3):
            seen.extend(jobs.refresh(ledger, scheduler))
        return real(request)  # type: ignore[arg-type]

    monkeypatch.setattr(scheduler, "submit", slow)
    spec = prepared(scheduler, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec), scheduler, ledger)
    assert [(r.phase, r.reason) for r in seen] == [("intent", "Submitting")] * 3
    assert record.job_id is not None
    wait_until(lambda: scheduler.statuses([record.job_id or ""]), 10, "the job")
