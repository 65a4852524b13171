"""The contract suite through the real pyslurm, where it can be imported and fits the test cluster's Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers import log_patterns
from gpt_tune.schedulers.base import ENDED, SubmitRequest
from gpt_tune.schedulers.slurm_api import SlurmApi, is_installed
from gpt_tune.schedulers.slurm_cli import SlurmCli
from tests.cluster import SlurmCluster, wait_until
from tests.schedulers import test_contract as contract
from tests.schedulers import test_parts as parts

pytestmark = pytest.mark.slurm
_OF_PARTS = (
    "test_an_array_that_runs_in_part",
    "test_a_signal_comes_once_while_other_tasks_wait",
    "test_a_heterogeneous_job",
)

# The whole contract suite, and arrays and heterogeneous jobs, through pyslurm.
_SUITES = [(contract, n) for n in dir(contract)] + [(parts, n) for n in _OF_PARTS]
for _suite, _name in _SUITES:
    if _name.startswith("test_"):
        globals()[_name] = getattr(_suite, _name)


@pytest.fixture
def scheduler(request: pytest.FixtureRequest) -> Iterator[SlurmApi]:
    if not is_installed():
        pytest.skip("pyslurm is not installed: it builds only against the headers of its own Slurm version")
    request.getfixturevalue("slurm")
    api = SlurmApi()
    api.my_jobs()
    if api.fallback:
        pytest.skip(f"pyslurm cannot be used with this cluster: {api.fallback}")
    yield api
    assert api.fallback == "", "a test fell back to Slurm's commands"
    api.close()


def test_both_ways_see_the_same_cluster(scheduler: SlurmApi, slurm: SlurmCluster, tmp_path: Path) -> None:
    job = slurm.run(
        "sbatch",
        "--parsable",
        "-N2",
        "--gres=gpu:b200:4",
        "-p",
        "dev",
        "-o",
        "/dev/null",
        "--wrap",
        "sleep 600",
    )
    slurm.wait_for_state(job, "RUNNING")
    api, cli = scheduler.discover(), SlurmCli().discover()
    assert (api.name, api.version) == (cli.name, cli.version)
    assert api.partitions == cli.partitions
    assert [p.gpus_free for p in api.partitions if p.name == "dev"] == [64 - 8]


def test_both_ways_see_the_same_job(scheduler: SlurmApi, slurm: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(
        f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:b200:4\n"
        f"#SBATCH --time=30:00\n#SBATCH --output={tmp_path}/%x-%j.out\n#SBATCH --exclude=b200-1,b200-2\n"
        "#SBATCH --signal=B:USR1@120\n#SBATCH --open-mode=append\n#SBATCH --no-requeue\nsleep 600\n"
    )
    request = SubmitRequest(str(tmp_path / "job.sh"), str(tmp_path), "both", "token-b", {"ADDED": "given"})
    by_api, by_cli = scheduler.submit(request), SlurmCli().submit(request)
    slurm.wait_for_state(by_api, "RUNNING")
    slurm.wait_for_state(by_cli, "RUNNING")
    shown = [_shown(slurm, job) for job in (by_api, by_cli)]
    for key in (
        "NumNodes", "NumTasks", "TimeLimit", "ReqTRES", "TresPerNode", "ExcNodeList", "Requeue", "StdOut", "WorkDir",
        "Comment", "MinMemoryNode", "CPUs/Task", "NtasksPerN:B:S:C", "Partition", "UserId",
    ):  # fmt: skip
        values = [
            re.sub(rf"(?<!\w){job}(?!\w)", "J", s.get(key, "")) for job, s in zip((by_api, by_cli), shown)
        ]
        assert values[0] == values[1], key
    for job_id, seen in scheduler.statuses([by_api, by_cli]).items():
        other = SlurmCli().statuses([job_id])[job_id]
        # One way fills in what the log path's patterns stand for, the other leaves it to us.
        assert replace(seen, log_paths=()) == replace(other, log_paths=())
        known = log_patterns.values(job_id, name=seen.name)
        assert [log_patterns.expand(p, known) for p in other.log_paths] == list(seen.log_paths)


def _shown(slurm: SlurmCluster, job_id: str) -> dict[str, str]:
    words = slurm.run("scontrol", "show", "job", "-o", job_id).split()
    return {k: v for k, equals, v in (w.partition("=") for w in words) if equals}


def test_arrays_and_a_refusal(scheduler: SlurmApi, slurm: SlurmCluster, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --array=1-3\n#SBATCH --output=/dev/null\n[ $SLURM_ARRAY_TASK_ID != 2 ]\n"
    )
    job_id = scheduler.submit(SubmitRequest(str(script), str(tmp_path), "arr", "t"))
    wait_until(lambda: scheduler.statuses([job_id])[job_id].state in ENDED, 30, "the array's end")
    tasks = scheduler.statuses([f"{job_id}_1", f"{job_id}_2"])
    assert {k: v.state for k, v in tasks.items()} == {f"{job_id}_1": "COMPLETED", f"{job_id}_2": "FAILED"}
    script.write_text("#!/bin/bash\n#SBATCH --partition=nosuch\ntrue\n")
    with pytest.raises(SchedulerError, match="Invalid partition name"):
        scheduler.submit(SubmitRequest(str(script), str(tmp_path), "x", "t"))
