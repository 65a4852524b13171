"""Rendered jobs under a real Slurm: what sbatch makes of the options, ranks over nodes, the early warning."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.profiles.schema import Custom, Profile, Site, Smoke
from gpt_tune.recipes.base import JobSpec
from tests.recipes.specs import job, put

pytestmark = pytest.mark.slurm

LONG = Smoke(steps=1_000_000, layers=1, hidden=16, heads=2, seq_length=16, micro_batch_size=2)
SHORT = Smoke(steps=20, layers=1, hidden=16, heads=2, seq_length=16, micro_batch_size=2)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs of o'brien #1" / "r1"


def spec(run_dir: Path, smoke: Smoke = SHORT, **changes: Any) -> JobSpec:
    values: dict[str, Any] = {
        "scheduler": "slurm", "gpus": 4, "gpus_per_node": 2, "nodes": 2, "token": "tok-77",
        "site": Site(partition="dev", time_limit="10"),
    }  # fmt: skip
    profile = Profile(name="smoke test; #1", recipe="smoke", smoke=smoke)
    return job(run_dir, profile, **{**values, **changes})


def submit(script: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["sbatch", "--parsable", *arguments, str(script)],
        env={**os.environ, "PYTHON": sys.executable}, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def state(job_id: str) -> str:
    done = subprocess.run(
        ["squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def wait_for(what: Callable[[], bool], words: str, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"never: {words}"
        time.sleep(0.1)


def facts(job_id: str) -> dict[str, Any]:
    text = subprocess.run(["squeue", "--json"], capture_output=True, text=True, check=True).stdout
    return next(j for j in json.loads(text)["jobs"] if str(j["job_id"]) == job_id)


def test_ranks_run_over_nodes_and_the_log_is_where_it_was_promised(slurm: Any, run_dir: Path) -> None:
    rendered = recipes.render(spec(run_dir))
    job_id = submit(put(rendered, run_dir))
    wait_for(lambda: state(job_id) == "COMPLETED", "completion")
    log = Path(rendered.log_paths[0].replace("%x", rendered.summary["name"]).replace("%j", job_id))
    text = log.read_text()
    for rank, node in ((0, "b200-1"), (1, "b200-1"), (2, "b200-2"), (3, "b200-2")):
        assert f"rank {rank} of 4 on {node}: pid" in text
    assert " iteration       20/      20 |" in text
    started = json.loads((run_dir / "started").read_text())
    assert (started["token"], started["job_id"]) == ("tok-77", job_id)
    assert (run_dir / "exit_code").read_text() == "0\n"


def test_sbatch_reads_the_options_as_they_were_meant(slurm: Any, run_dir: Path) -> None:
    site = Site(partition="dev", time_limit="1:00:00", extra_sbatch=("--nice=100", "--hold"))
    job_id = submit(put(recipes.render(spec(run_dir, site=site, gpu_type="b200")), run_dir))
    try:
        found = facts(job_id)
        assert found["name"] == "smoke-test-1"
        assert found["comment"] == "tok-77"
        assert found["standard_output"] == f"{run_dir}/logs/%x-%j.out"
        assert found["current_working_directory"] == str(run_dir)
        assert found["partition"] == "dev"
        shown = subprocess.run(
            ["scontrol", "show", "job", job_id], capture_output=True, text=True, check=True
        ).stdout
        for words in (
            "NumNodes=2",
            "NumTasks=4",
            "TresPerNode=gres:gpu:b200:2",
            "TimeLimit=01:00:00",
            "Reason=JobHeldUser",
        ):
            assert words in shown, shown
    finally:
        subprocess.run(["scancel", job_id], check=True)


def test_the_early_warning_saves_before_the_limit(slurm: Any, run_dir: Path) -> None:
    rendered = recipes.render(spec(run_dir, LONG))
    job_id = submit(put(rendered, run_dir))
    log = Path(rendered.log_paths[0].replace("%x", rendered.summary["name"]).replace("%j", job_id))
    wait_for(lambda: log.exists() and " iteration " in log.read_text(), "the first step")
    # What Slurm itself sends because of --signal=B:USR1@15, without waiting for the limit.
    subprocess.run(["scancel", "--batch", "--signal=USR1", job_id], check=True)
    wait_for(lambda: state(job_id) == "COMPLETED", "completion")
    text = log.read_text()
    assert "received SIGUSR1, telling the trainer to save and stop" in text
    assert "[exiting program after receiving SIG" in text
    assert (run_dir / "checkpoints" / "latest_checkpointed_iteration.txt").exists()
    assert (run_dir / "exit_code").read_text() == "0\n"


def test_a_cancel_saves_too(slurm: Any, run_dir: Path) -> None:
    rendered = recipes.render(spec(run_dir, LONG))
    job_id = submit(put(rendered, run_dir))
    log = Path(rendered.log_paths[0].replace("%x", rendered.summary["name"]).replace("%j", job_id))
    wait_for(lambda: log.exists() and " iteration " in log.read_text(), "the first step")
    subprocess.run(["scancel", job_id], check=True)
    wait_for(lambda: state(job_id) == "CANCELLED", "the cancel")
    wait_for(lambda: "successfully saved checkpoint" in log.read_text(), "the save")


def test_a_failed_rank_fails_the_job(slurm: Any, run_dir: Path, tmp_path: Path) -> None:
    program = tmp_path / "trainer"
    program.write_text("#!/bin/bash\n[[ $1 != -c ]] || exit 0\n[[ $RANK != 3 ]] || exit 41\nexec sleep 600\n")
    program.chmod(0o755)
    script = put(recipes.render(spec(run_dir)), run_dir)
    done = subprocess.run(
        ["sbatch", "--parsable", str(script)],
        env={**os.environ, "PYTHON": str(program)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    job_id = done.stdout.strip()
    wait_for(lambda: state(job_id) == "FAILED", "the failure")
    assert (run_dir / "exit_code").read_text() == "41\n"


def test_a_trainer_that_knows_only_sigterm_gets_only_that(slurm: Any, run_dir: Path, tmp_path: Path) -> None:
    """Megatron saves on TERM; the warning (USR1), which Slurm sends to all processes of a task, would kill it."""
    program = tmp_path / "trainer"
    program.write_text(
        f"#!/bin/bash\n[[ $1 != -c ]] || exit 0\nexec {shlex.quote(sys.executable)} -c '\n"
        "import os, signal, sys, time\n"
        'signal.signal(signal.SIGTERM, lambda *_: (print("saved by", os.environ["RANK"], flush=True), sys.exit(0)))\n'
        'print("up", flush=True)\ntime.sleep(600)\n'
        "'\n"
    )
    program.chmod(0o755)
    rendered = recipes.render(spec(run_dir))
    done = subprocess.run(
        ["sbatch", "--parsable", str(put(rendered, run_dir))],
        env={**os.environ, "PYTHON": str(program)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    job_id = done.stdout.strip()
    log = Path(rendered.log_paths[0].replace("%x", rendered.summary["name"]).replace("%j", job_id))
    wait_for(lambda: log.exists() and log.read_text().count("up\n") == 4, "all ranks")
    subprocess.run(["scancel", "--batch", "--signal=USR1", job_id], check=True)
    wait_for(lambda: state(job_id) == "COMPLETED", "completion")
    assert sorted(x for x in log.read_text().splitlines() if "saved" in x) == [
        f"saved by {n}" for n in range(4)
    ]


def test_a_script_of_the_users_own(slurm: Any, tmp_path: Path) -> None:
    theirs = tmp_path / "their place" / "own.sbatch"
    theirs.parent.mkdir()
    theirs.write_text(
        "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=2 --job-name 'their job'\n#SBATCH --output=elsewhere/%j.out\n"
        'srun bash -c \'echo "task $SLURM_PROCID on $SLURMD_NODENAME"\'\necho "in $PWD"\n'
    )
    run_dir = tmp_path / "run"
    profile = Profile(name="x", recipe="custom", custom=Custom(script=str(theirs)))
    rendered = recipes.render(job(run_dir, profile, site=Site(partition="dev")))
    job_id = submit(put(rendered, run_dir))
    wait_for(lambda: state(job_id) == "COMPLETED", "completion")
    text = (run_dir / "logs" / f"their job-{job_id}.out").read_text()
    assert all(f"task {n} on b200-" in text for n in range(4))
    assert f"in {theirs.parent}" in text
