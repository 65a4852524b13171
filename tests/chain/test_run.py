"""Chains on a real Slurm and on this machine: carried on, closed, cancelled, looked at late, and never doubled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import clusters
from gpt_tune.errors import UserError
from gpt_tune.jobs import chains
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Profile, Site, Training
from gpt_tune.recipes.base import RenderedFile
from gpt_tune.schedulers.base import Scheduler
from gpt_tune.schedulers.local import Local
from gpt_tune.workflows import chain, chain_summary
from gpt_tune.workflows.launch import Launch
from tests.cluster import SlurmCluster, wait_until
from tests.jobs.helpers import prepared, rendered

# Each job trains 10 iterations further and ends as if its time were up; STEP=0 saves nothing.
_TRAIN = """
mkdir -p checkpoints
tracker=checkpoints/latest_checkpointed_iteration.txt
n=$(cat $tracker 2>/dev/null || echo 0)
for i in 1 2 3 4 5 6 7 8 9 10; do
  echo " iteration $((n + i))/ 30 | consumed samples: 8 | elapsed time per iteration (ms): 100.0 | lm loss: 5.0E+00 |"
done
[ STEP = 0 ] || echo $((n + STEP)) > $tracker
[ $((n + STEP)) -lt 30 ] || exit 0
LAST
"""
TIME_IS_UP = "echo 'job: received SIGUSR1, telling the trainer to save and stop'; exit 0"


def launched(
    scheduler: Scheduler, folder: Path, last: str = TIME_IS_UP, step: int = 10, *options: str
) -> Launch:
    spec = prepared(scheduler, folder)
    body = _TRAIN.replace("STEP", str(step)).replace("LAST", last)
    return Launch(spec, rendered(spec, body, *options), scheduler, scheduler.discover(), None, (), None)


def until(ledger: Ledger, run_id: str, condition: Callable[[RunRecord], bool]) -> RunRecord:
    def check() -> bool:
        chain.refresh(ledger)
        return condition(ledger.get(run_id))

    wait_until(check, 60, "the awaited state of the chain")
    return ledger.get(run_id)


def over(record: RunRecord) -> bool:
    found = chains.chain_of(record)
    return found is not None and bool(found.over)


def queued(slurm: SlurmCluster) -> list[str]:
    return slurm.run("squeue", "-h", "-o", "%i").split()


def checkpoints(record: RunRecord) -> str:
    return Path(record.run_dir, "checkpoints", "latest_checkpointed_iteration.txt").read_text().strip()


@pytest.fixture(params=[pytest.param("slurm", marks=pytest.mark.slurm), "local"])
def scheduler(request: pytest.FixtureRequest) -> Scheduler:
    request.getfixturevalue("slurm" if request.param == "slurm" else "home")
    return clusters.connect("testbed") if request.param == "slurm" else Local()


def test_on_and_on_until_it_is_done(scheduler: Scheduler, tmp_path: Path) -> None:
    ledger = Ledger.open()
    record = chain.submit(launched(scheduler, tmp_path / "runs"), ledger, 6)
    ended = until(ledger, record.run_id, over)
    assert chains.chain_of(ended) == chains.Chain(3, 6, "done")
    assert (ended.state, ended.exit_code, checkpoints(ended)) == ("COMPLETED", 0, "30")
    assert [j.state for j in ledger.jobs(ended.run_id)] == ["COMPLETED"] * 3
    found = chain_summary.summary(ended, ledger, scheduler.files)
    assert (found.jobs, found.iteration, found.total_iterations, found.checkpoint) == (3, 30, 30, 30)
    assert found.at_risk_iterations == 0
    assert (
        chain_summary.lines(chains.Chain(3, 6, "done"), found)[0]
        == "chain        3 of at most 6 jobs; it ended: the training is complete"
    )


def test_no_progress_ends_it_as_the_job_that_made_none(scheduler: Scheduler, tmp_path: Path) -> None:
    ledger = Ledger.open()
    record = chain.submit(launched(scheduler, tmp_path / "runs", "exit 7", 0), ledger, 6)
    ended = until(ledger, record.run_id, over)
    assert chains.chain_of(ended) in (chains.Chain(1, 6, "no-progress"), chains.Chain(2, 6, "no-progress"))
    assert (ended.state, ended.exit_code) == ("FAILED", 7)


def test_an_error_that_comes_back_ends_it(scheduler: Scheduler, tmp_path: Path) -> None:
    """Out of memory after a checkpoint: another job would run into it again."""
    words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
    ledger = Ledger.open()
    record = chain.submit(launched(scheduler, tmp_path / "runs", f"echo '{words}'; exit 1"), ledger, 6)
    ended = until(ledger, record.run_id, over)
    found = chains.chain_of(ended)
    assert found is not None
    # Without a gpt-tune that looks, the next job may have started; it gets no further than that one.
    assert found.over == "incurable"
    assert ended.state in ("FAILED", "CANCELLED")


def test_the_most_jobs(scheduler: Scheduler, tmp_path: Path) -> None:
    ledger = Ledger.open()
    record = chain.submit(launched(scheduler, tmp_path / "runs"), ledger, 2)
    ended = until(ledger, record.run_id, over)
    assert chains.chain_of(ended) == chains.Chain(2, 2, "max-jobs")
    assert checkpoints(ended) == "20"


@pytest.mark.slurm
def test_it_goes_on_while_nobody_looks(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The jobs carry each other on; whoever looks afterwards sees them all."""
    ledger = Ledger.open()
    record = chain.submit(launched(clusters.connect(), tmp_path / "runs"), ledger, 6)
    wait_until(lambda: Path(record.run_dir, "chain", "over").exists(), 60, "the chain's end without gpt-tune")
    wait_until(lambda: queued(slurm) == [], 30, "an empty queue")
    ended = until(ledger, record.run_id, over)
    assert chains.chain_of(ended) == chains.Chain(3, 6, "done")
    assert checkpoints(ended) == "30"


@pytest.mark.slurm
def test_cancel_ends_what_is_queued_too(slurm: SlurmCluster, tmp_path: Path) -> None:
    ledger = Ledger.open()
    record = chain.submit(launched(clusters.connect(), tmp_path / "runs", "sleep 600"), ledger, 6)
    wait_until(lambda: len(queued(slurm)) == 2, 30, "the next job in the queue")
    until(ledger, record.run_id, lambda r: r.state == "RUNNING")
    chain.cancel(record.run_id, ledger)
    ended = until(ledger, record.run_id, over)
    wait_until(lambda: queued(slurm) == [], 30, "an empty queue")
    assert chains.chain_of(ended) == chains.Chain(1, 6, "stopped")
    assert ended.state == "CANCELLED"


@pytest.mark.slurm
def test_nodes_without_sbatch(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Where jobs may not submit, gpt-tune does it when it looks; several looking at once submit one job."""
    ledger = Ledger.open()
    launch = launched(clusters.connect(), tmp_path / "runs", "exit 3")
    script = launch.rendered.files[0]
    broken = script.content.replace(b"#SBATCH --nodes", b"#SBATCH --export=NONE\n#SBATCH --nodes", 1)
    files = (RenderedFile(script.path, broken, executable=True), *launch.rendered.files[1:])
    launch = replace(launch, rendered=replace(launch.rendered, files=files))
    ready = chain.prepared(launch, 2)
    guard = next(f for f in ready.rendered.files if f.path == chain.GUARD)
    no_sbatch = replace(
        guard, content=b"sbatch() { echo 'sbatch: error: Access denied'; return 1; }\n" + guard.content
    )
    files = tuple(no_sbatch if f is guard else f for f in ready.rendered.files)
    from gpt_tune import jobs

    record = jobs.submit(
        ready.spec, replace(ready.rendered, files=files), ready.scheduler, ledger, (chains.tag(2),)
    )
    ended = until(ledger, record.run_id, over)
    assert chains.chain_of(ended) == chains.Chain(2, 2, "max-jobs")
    assert checkpoints(ended) == "20"


def test_a_run_that_saves_nothing_is_refused(home: Path, tmp_path: Path) -> None:
    launch = launched(Local(), tmp_path / "runs")
    profile = Profile(recipe="megatron-deepspeed", training=Training(checkpoint_interval=None))
    with pytest.raises(UserError, match="saves no checkpoints") as caught:
        chain.prepared(replace(launch, spec=replace(launch.spec, profile=profile)))
    assert "training.checkpoint_interval=100" in caught.value.hint


@pytest.mark.parametrize("number", [0, -1, 1001])
def test_an_impossible_number_of_jobs(home: Path, tmp_path: Path, number: int) -> None:
    with pytest.raises(UserError, match="not possible"):
        chain.prepared(launched(Local(), tmp_path / "runs"), number)


@pytest.mark.slurm
def test_as_a_person_does_it(slurm: SlurmCluster, tmp_path: Path) -> None:
    """A smoke run whose first job is told to stop on its way; watched over all of its jobs."""
    sites.save(Site(cluster="testbed", scheduler="slurm", run_root=str(tmp_path / "runs")))
    run = cli(
        "submit", "smoke", "--until-done", "--max-jobs", "3", "--yes", "--set", "resources.gpus=1",
        "--set", "smoke.steps=400", "--set", "smoke.hidden=128",
    )[-1]  # fmt: skip
    [log] = run["log_paths"]
    wait_until(lambda: " iteration " in Path(log).read_text(), 60, "the first steps")
    slurm.run("scancel", "--batch", "--signal=USR1", run["job_id"])
    events = cli("watch", run["run_id"])
    end = events[-1]
    assert (end["event"], end["state"]) == ("end", "COMPLETED")
    chain_ = end["chain"]
    assert (chain_["jobs"], chain_["over"], chain_["iteration"], chain_["checkpoint"]) == (
        2,
        "done",
        400,
        400,
    )
    assert 0 < chain_["goodput"] <= 1
    iterations = [e["iteration"] for e in events if e["event"] == "step"]
    assert max(iterations) == 400
    states = [e["state"] for e in events if e["event"] == "state"]
    assert states[-1] == "COMPLETED"
    assert "COMPLETED" not in states[:-1]  # between two jobs nothing has ended
    job = cli("jobs")[-1]["jobs"][0]
    assert job["chain"]["text"] == "2 of at most 3 jobs; it ended: the training is complete"
    assert len(job["job_ids"]) == 2


def cli(*arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tui", *arguments, "--json"], capture_output=True, text=True, timeout=150, check=False,
        stdin=subprocess.DEVNULL, cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
