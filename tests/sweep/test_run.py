"""Real sweeps: one array, a job each, one after the other; nothing shared, everything collected."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import jobs
from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.ledger import Ledger
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Profile, Resources, Site, Smoke
from gpt_tune.schedulers import slurm_cli
from gpt_tune.schedulers.base import SubmitUnknown
from gpt_tune.workflows import records
from gpt_tune.workflows import sweep as sweeps
from gpt_tune.workflows.sweeping.grid import Task
from gpt_tune.workflows.sweeping.ranking import Row
from tests.cluster import SlurmCluster
from tests.jobs.helpers import Impatient
from tests.jobs.test_find import PLAIN

TINY = Profile(
    name="tiny",
    recipe="smoke",
    smoke=Smoke(hidden=16, seq_length=16, micro_batch_size=1),
    resources=Resources(gpus=1),
)


@pytest.fixture
def site(slurm: SlurmCluster, tmp_path: Path) -> SlurmCluster:
    sites.save(Site(cluster="testbed", scheduler="slurm", run_root=str(tmp_path / "runs")))
    return slurm


@pytest.mark.slurm
def test_like_tasks_are_one_array(site: SlurmCluster, tmp_path: Path) -> None:
    ledger = Ledger.open()
    sweep = sweeps.prepare(TINY, ["smoke.layers=1,2", "smoke.hidden=16,32"], steps=12)
    assert sweep.as_array
    records = sweeps.submit(sweep, ledger)
    base = records[0].job_ids[0].split("_")[0]
    assert [r.job_id for r in records] == [f"{base}_{n}" for n in (1, 2, 3, 4)]
    rows = sweeps.follow(sweep, ledger, pause_seconds=0.2, pacer=Impatient())
    assert sorted(r.number for r in rows) == [1, 2, 3, 4]
    assert [r.rank for r in rows] == [1, 2, 3, 4]
    assert {r.state for r in rows} == {"COMPLETED"}
    for row in rows:
        assert row.steps == 12 - 5
        assert row.low_ms is not None
        assert row.step_time_ms is not None
        assert row.high_ms is not None
        assert row.low_ms <= row.step_time_ms <= row.high_ms  # a log tells tenths of a millisecond
    folders = [Path(r.run_dir) for r in sweeps.runs(sweep.sweep_id, ledger)]
    logs = [jobs.resolved_log_paths(r) for r in sweeps.runs(sweep.sweep_id, ledger)]
    assert len(set(folders)) == 4
    assert len({path for paths in logs for path in paths}) == 4
    for folder, paths in zip(folders, logs):
        assert all(path.startswith(f"{folder}/") for path in paths)
        started = [json.loads(line) for line in (folder / "started").read_text().splitlines()]
        assert len(started) == 1
    assert {s.run_id for s in sweeps.runs(sweep.sweep_id, ledger)} == {r.run_id for r in records}
    assert sweeps.table(sweep.sweep_id, ledger) == rows


@pytest.mark.slurm
def test_unlike_tasks_are_a_job_each(site: SlurmCluster) -> None:
    ledger = Ledger.open()
    sweep = sweeps.prepare(TINY, ["resources.gpus=1,16"], steps=6)
    assert not sweep.as_array
    records = sweeps.submit(sweep, ledger)
    assert len({r.job_id for r in records}) == 2
    assert [r.nodes for r in records] == [1, 2]
    rows = sweeps.follow(sweep, ledger, pause_seconds=0.2, pacer=Impatient())
    assert {r.state for r in rows} == {"COMPLETED"}


def test_on_this_machine_one_after_the_other(home: Path) -> None:
    ledger = Ledger.open()
    sweep = sweeps.prepare(TINY, ["smoke.hidden=16,32"], steps=8)
    at_once: list[int] = []
    sweeps.submit(sweep, ledger)
    rows = sweeps.follow(
        sweep,
        ledger,
        pause_seconds=0.2,
        told=lambda rows: at_once.append(sum(r.state == "RUNNING" for r in rows)),
    )
    assert [r.state for r in rows] == ["COMPLETED"] * 2
    assert max(at_once) <= 1


def test_a_combination_that_cannot_run_is_left_out(home: Path) -> None:
    sweep = sweeps.prepare(TINY, ["smoke.hidden=16,17"], steps=8)  # 17 is no multiple of 4 heads
    assert sorted(sweep.launches) == [1]
    assert "does not divide" in sweep.skipped[2]
    with pytest.raises(UserError, match="does not divide"):
        sweeps.prepare(TINY, ["smoke.hidden=17,18"], steps=8)


@pytest.mark.slurm
def test_losers_are_stopped(site: SlurmCluster) -> None:
    """The slow task would train for an hour; the fast one ends it."""
    ledger = Ledger.open()
    sweep = sweeps.prepare(TINY, ["smoke.seq_length=16,512"], steps=5000)
    sweeps.submit(sweep, ledger)
    stopped: list[int] = []

    def told(rows: list[Row]) -> None:
        """Once the loser is stopped the test has seen enough: end the other one, too."""
        if not stopped and (ended := [r.number for r in rows if r.state == "CANCELLED"]):
            stopped.extend(ended)
            for row in rows:
                jobs.cancel(str(row.run_id), ledger)

    rows = sweeps.follow(sweep, ledger, stop_losers=True, pause_seconds=0.2, pacer=Impatient(), told=told)
    assert [r.number for r in rows if r.rank == 2] == stopped
    assert [r.steps >= 5 for r in rows] == [True, True]


@pytest.mark.slurm
def test_a_refused_array_leaves_nothing(site: SlurmCluster, tmp_path: Path) -> None:
    ledger = Ledger.open()
    profile = Profile(
        recipe="smoke", resources=Resources(gpus=1), site=Site(extra_sbatch=("--constraint=nosuch",))
    )
    sweep = sweeps.prepare(profile, ["smoke.hidden=16,32"], steps=8)
    with pytest.raises(SchedulerError, match="Invalid feature"):
        sweeps.submit(sweep, ledger)
    assert ledger.runs() == []
    assert not Path(sweep.folder).exists()
    assert site.run("squeue", "-h") == ""


@pytest.mark.slurm
def test_an_array_whose_answer_got_lost_is_found(site: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open()
    sweep = sweeps.prepare(TINY, ["smoke.hidden=16,32"], steps=8)
    real = slurm_cli.SlurmCli.submit

    def lost(self: Any, request: Any) -> str:
        real(self, request)
        raise SubmitUnknown("lost", "")

    monkeypatch.setattr(slurm_cli.SlurmCli, "submit", lost)
    records = sweeps.submit(sweep, ledger)
    base = records[0].job_ids[0].split("_")[0]
    assert [r.job_id for r in records] == [f"{base}_{n}" for n in (1, 2)]
    assert len(site.run("squeue", "-h", "-r", "-t", "all", "-n", records[0].name, "-o", "%i").split()) == 2


@pytest.mark.parametrize(
    ("vary", "top", "words"),
    [((), None, "--vary"), (("smoke.hidden=1",), 3, "--vary"), ((), 3, "no layouts"), ((), 0, "layouts")],
)
def test_wrong_use(home: Path, vary: tuple[str, ...], top: int | None, words: str) -> None:
    with pytest.raises(UserError) as caught:
        sweeps.prepare(TINY, vary, top)
    assert words in str(caught.value)


def test_an_unknown_sweep(home: Path) -> None:
    with pytest.raises(UserError, match="no sweep 's1'"):
        sweeps.table("s1", Ledger.open())


@pytest.mark.slurm
def test_the_planners_best_layouts(site: SlurmCluster) -> None:
    """Rendered and decided only: no trainer is installed here."""
    profile = Profile(recipe="megatron-deepspeed", resources=Resources(gpus=16))
    sweep = sweeps.prepare(profile, top=3, steps=10)
    assert len(sweep.launches) == 3
    layouts = [launch.plan.layout for launch in sweep.launches.values() if launch.plan]
    assert len({str(layout) for layout in layouts}) == 3
    assert all(task.values for task in sweep.tasks)
    assert sweep.as_array


@pytest.mark.slurm
def test_the_command(site: SlurmCluster) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tui", "sweep", "smoke", "--vary", "smoke.hidden=16,32", "--steps", "10", "--set",
         "resources.gpus=1", "--yes", "--json"],
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["schema"] == "gpt-tune/sweep/1"
    assert [row["rank"] for row in data["sweep"]] == [1, 2]
    again = subprocess.run(
        [sys.executable, "-m", "tui", "sweep", "--collect", data["sweep_id"]],
        capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    assert "smoke.hidden=16" in again.stdout


@pytest.mark.slurm
def test_a_trainer_that_is_nowhere_is_said_before_anything_is_written(site: SlurmCluster) -> None:
    ledger = Ledger.open()
    profile = Profile(recipe="megatron-deepspeed", resources=Resources(gpus=16))
    sweep = sweeps.prepare(profile, top=2, steps=10)
    with pytest.raises(UserError, match=r"trainer\.path"):
        sweeps.submit(sweep, ledger)
    assert ledger.runs() == []
    assert not Path(sweep.folder).exists()
    assert site.run("squeue", "-h") == ""


def test_speed_is_of_the_processes_that_trained(home: Path) -> None:
    """A smoke job trains in as many processes as its log says, whatever GPUs it holds."""
    assert records.training_gpus_of(replace(PLAIN, recipe="smoke", gpus=16)) is None
    assert records.training_gpus_of(replace(PLAIN, recipe="megatron-deepspeed", gpus=16)) == 16


def test_tasks_that_are_no_grid(home: Path) -> None:
    """A ladder: each rung brings its own profile and its own words."""
    rungs = [
        Task(number, {"rung": name}, replace(TINY, smoke=replace(TINY.smoke, hidden=hidden, steps=8)))
        for number, (name, hidden) in enumerate((("small", 16), ("wide", 32)), 1)
    ]
    sweep = sweeps.prepare_tasks(TINY, rungs)
    ledger = Ledger.open()
    sweeps.submit(sweep, ledger)
    rows = sweeps.follow(sweep, ledger, pause_seconds=0.1)
    assert {r.values["rung"] for r in rows} == {"small", "wide"}
    assert [r.state for r in rows] == ["COMPLETED"] * 2
    assert len({r.run_dir for r in sweeps.runs(sweep.sweep_id, ledger)}) == 2
    with pytest.raises(UserError, match="0 tasks"):
        sweeps.prepare_tasks(TINY, [])
