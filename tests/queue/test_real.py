"""A real queue: why mine waits, what could start instead, and somebody else's way of submitting adopted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger
from gpt_tune.schedulers.base import ENDED
from gpt_tune.schedulers.local import Local
from gpt_tune.workflows import adopt, queue
from gpt_tune.workflows.queue import Wanted
from gpt_tune.workflows.queue_data import queue_json
from tests.cluster import SlurmCluster, wait_until
from tests.jobs.helpers import prepared, refreshed_until, rendered

pytestmark = pytest.mark.slurm
LOG = (
    "using world size: 16, data-parallel-size: 16\n"
    "------------------------ arguments ------------------------\n"
    "  num_layers ...................................... 24\n"
    "  hidden_size ..................................... 2048\n"
    "  num_attention_heads ............................. 16\n"
    "  seq_length ...................................... 2048\n"
    "  padded_vocab_size ............................... 50304\n"
    "-------------------- end of arguments ---------------------\n"
)


def blocked(slurm: SlurmCluster) -> str:
    """A job that takes six of the eight nodes."""
    job = slurm.run(
        "sbatch",
        "--parsable",
        "-N6",
        "--exclusive",
        "--gres=gpu:b200:8",
        "-p",
        "dev",
        "-o",
        "/dev/null",
        "--wrap",
        "sleep 600",
    )
    slurm.wait_for_state(job, "RUNNING")
    return job


def test_mine_why_and_free(slurm: SlurmCluster, tmp_path: Path) -> None:
    ledger = Ledger.open()
    scheduler = clusters.connect()
    other = blocked(slurm)
    spec = prepared(scheduler, tmp_path / "runs", gpus=32)
    ours = jobs.submit(spec, rendered(spec, "sleep 600"), scheduler, ledger)
    wait_until(lambda: queue.look(scheduler, ledger).jobs[-1].why, 30, "a reason")
    view = queue.look(scheduler, ledger)
    assert [(j.status.job_id, j.run_id, j.adoptable) for j in view.jobs] == [
        (other, None, True), (ours.job_id, ours.run_id, False),
    ]  # fmt: skip
    waiting = view.jobs[1]
    assert waiting.starts == "yes"
    assert [f.free for f in view.free if f.partition == "dev"] == [16]
    data = queue_json(view)
    assert data["queue"][1]["why"]
    assert {f["gpu"] for f in data["free"]} == {"b200", "h100"}


def test_what_could_start_now(slurm: SlurmCluster) -> None:
    scheduler = clusters.connect()
    cluster = scheduler.discover()
    [now] = queue.offers(scheduler, cluster, Wanted("dev", 16, 8, "b200"))
    assert now.now
    blocked(slurm)
    cluster = scheduler.discover()
    before = scheduler.calls
    found = queue.offers(scheduler, cluster, Wanted("dev", 24, 8, "b200", "1:00:00"))
    assert scheduler.calls - before <= 8
    first, *others = found
    assert not first.now
    assert first.at is not None
    assert {(o.wanted.gpus, o.wanted.gpu) for o in others if o.now} >= {(16, "b200"), (24, "h100")}
    never = queue.offers(scheduler, cluster, Wanted("dev", 16, 8, "nosuch"))[0]
    assert never.at is None
    assert never.refusal
    assert slurm.run("squeue", "-h", "-t", "pending") == ""  # asking submits nothing


def test_on_this_machine_everything_starts_now(home: Path) -> None:
    scheduler = Local()
    offer = queue.ask(scheduler, Wanted("local", 1, 1))
    assert offer.now
    assert queue.look(scheduler, Ledger.open()).jobs == ()


def test_a_job_of_the_users_own_becomes_a_run(slurm: SlurmCluster, tmp_path: Path) -> None:
    folder = tmp_path / "own work"
    folder.mkdir()
    (folder / "log").write_text(LOG)
    (folder / "train.sh").write_text(
        "#!/bin/bash\n#SBATCH --job-name=mine\n#SBATCH -N2 --gres=gpu:b200:8\n#SBATCH --output=out-%j.txt\n"
        f"cat '{folder}/log'; read -t 600 < <(sleep 600)\n"
    )
    job = slurm.run("sbatch", "--parsable", f"--chdir={folder}", str(folder / "train.sh"))
    slurm.wait_for_state(job, "RUNNING")
    out = folder / f"out-{job}.txt"
    wait_until(lambda: out.exists() and out.stat().st_size > 100, 20, "its log")
    ledger = Ledger.open()
    record = adopt.adopt(job, ledger=ledger)
    assert (record.job_id, record.state, record.gpus, record.nodes) == (job, "RUNNING", 16, 2)
    assert jobs.resolved_log_paths(record) == [str(out)]
    assert record.run_dir == str(folder)
    assert record.shape is not None
    assert (record.shape["layers"], record.shape["hidden"], record.shape["heads"]) == (24, 2048, 16)
    assert jobs.find(job, ledger).run_id == record.run_id
    with pytest.raises(UserError, match="already"):
        adopt.adopt(job, ledger=ledger)
    jobs.cancel(job, ledger)
    assert refreshed_until(ledger, record.run_id, lambda r: r.state in ENDED).state == "CANCELLED"


def test_no_such_job(slurm: SlurmCluster) -> None:
    with pytest.raises(UserError, match="no job 98765"):
        adopt.adopt("98765")


def test_what_a_waiting_job_asks_for_is_asked_of_slurm(slurm: SlurmCluster) -> None:
    scheduler = clusters.connect()
    blocked(slurm)
    job = slurm.run(
        "sbatch",
        "--parsable",
        "-N4",
        "--gres=gpu:b200:8",
        "-p",
        "dev",
        "-t",
        "30",
        "-o",
        "/dev/null",
        "--wrap",
        "true",
    )
    slurm.wait_for_state(job, "PENDING")
    status = scheduler.statuses([job])[job]
    assert queue.wanted_of(scheduler, status) == Wanted("dev", 32, 8, "b200", "00:30:00")
