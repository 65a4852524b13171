"""What each job of a chain does by itself, without any gpt-tune around: run as the job script runs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpt_tune import rendering


class Chain:
    """A run folder, and a stand-in for sbatch."""

    def __init__(self, folder: Path, max_jobs: int = 4, total: int = 0) -> None:
        self.folder = folder
        for name in ("chain", "logs", "checkpoints", "bin"):
            (folder / name).mkdir(parents=True)
        self.guard = folder / "chain" / "guard.sh"
        self.guard.write_bytes(
            rendering.render(
                "common/chain.sh.j2", run_dir=str(folder), checkpoints=str(folder / "checkpoints"),
                script=str(folder / "job.sbatch"), max_jobs=max_jobs, total=total,
            )
        )  # fmt: skip
        self.sbatch('echo "$@" >>sbatch.calls; env >sbatch.env; echo $((100 + $(wc -l <sbatch.calls)))')

    def sbatch(self, body: str) -> None:
        path = self.folder / "bin" / "sbatch"
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def job(self, number: int, **variables: str) -> str:
        """Start one job; what it says, ending in GO when it would train."""
        environment = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": str(number), "SLURM_MEM_PER_NODE": "1",
            "SLURM_CONF": "/x", "SBATCH_PARTITION": "p", **variables,
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-c", '. "$1"\nset -euo pipefail\necho GO', "job.sbatch", str(self.guard)],
            env=environment, capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout

    def checkpoint(self, iteration: int) -> None:
        (self.folder / "checkpoints" / "latest_checkpointed_iteration.txt").write_text(f"{iteration}\n")

    def ended(self, number: int, code: int | None, warned: bool = False) -> None:
        text = "received SIGUSR1, telling the trainer to save and stop\n" if warned else "iteration\n"
        (self.folder / "logs" / f"x-{number}.out").write_text(text)
        path = self.folder / "exit_code"
        path.unlink(missing_ok=True)
        if code is not None:
            path.write_text(f"{code}\n")

    def text(self, name: str) -> str:
        path = self.folder / "chain" / name
        return path.read_text().strip() if path.exists() else ""

    @property
    def calls(self) -> list[str]:
        path = self.folder / "sbatch.calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path / "it's a $run")


def test_each_job_queues_the_next_until_the_work_is_done(chain: Chain) -> None:
    assert chain.job(100).endswith("GO\n")
    assert chain.calls == [f"--parsable --dependency=afterany:100 {chain.folder}/job.sbatch"]
    assert chain.text("next-100") == "101"
    chain.checkpoint(50)
    chain.ended(100, None)  # killed at its time limit
    assert chain.job(101).endswith("GO\n")
    assert chain.text("next-101") == "102"
    chain.checkpoint(90)
    chain.ended(101, 0)
    out = chain.job(102)
    assert "GO" not in out
    assert "ends here: done" in out
    assert chain.text("over") == "done"
    assert len(chain.calls) == 2


def test_the_next_job_is_not_shaped_by_this_ones_allocation(chain: Chain) -> None:
    chain.job(100)
    names = {line.split("=")[0] for line in (chain.folder / "sbatch.env").read_text().splitlines()}
    assert "SLURM_CONF" in names
    assert not {n for n in names if n.startswith(("SLURM_", "SBATCH_"))} - {"SLURM_CONF"}


@pytest.mark.parametrize(
    ("code", "warned", "goes_on"), [(0, False, False), (0, True, True), (1, False, True), (None, False, True)]
)
def test_ended_well_is_not_the_same_as_told_to_stop(
    chain: Chain, code: int | None, warned: bool, goes_on: bool
) -> None:
    chain.job(100)
    chain.checkpoint(10)
    chain.ended(100, code, warned)
    assert ("GO" in chain.job(101)) is goes_on


def test_no_new_checkpoint_ends_it(chain: Chain) -> None:
    chain.job(100)
    chain.ended(100, 1)
    assert "ends here: no-progress" in chain.job(101)
    assert chain.text("over") == "no-progress"


def test_the_number_of_iterations_ends_it(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "run", total=500)
    chain.job(100)
    chain.checkpoint(500)
    chain.ended(100, 0, warned=True)
    assert "ends here: done" in chain.job(101)


def test_the_number_of_jobs_ends_it(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "run", max_jobs=2)
    assert "GO" in chain.job(100)
    chain.checkpoint(1)
    chain.ended(100, None)
    assert "GO" in chain.job(101)
    assert len(chain.calls) == 1  # the second is the last: it queues nothing
    chain.checkpoint(2)
    chain.ended(101, None)
    assert "ends here: max-jobs" in chain.job(102)


def test_a_requeued_job_is_the_same_link(chain: Chain) -> None:
    chain.job(100)
    assert chain.job(100, SLURM_RESTART_COUNT="1").endswith("GO\n")
    assert len(chain.calls) == 1


def test_a_cancelled_chain_starts_nothing_more(chain: Chain) -> None:
    chain.job(100)
    chain.checkpoint(10)
    (chain.folder / "chain" / "stop").write_text("cancelled\n")
    assert "ends here: stopped" in chain.job(101)


@pytest.mark.parametrize(
    "body",
    ["echo 'sbatch: error: Access denied' >&2; exit 1", "exit 1", "echo hello", "exec no-such-program"],
)
def test_a_node_that_cannot_submit_says_so_and_trains(chain: Chain, body: str) -> None:
    chain.sbatch(body)
    assert chain.job(100).endswith("GO\n")
    assert chain.text("next-100").startswith("failed")


def test_noise_before_the_number(chain: Chain) -> None:
    chain.sbatch('echo "sbatch: your account is low" >&2; echo "712;cluster"')
    chain.job(100)
    assert chain.text("next-100") == "712"


def test_without_slurm_nothing_is_queued(chain: Chain) -> None:
    assert chain.job(1, SLURM_JOB_ID="", GPT_TUNE_JOB_ID="local-1", GPT_TUNE_LOCAL="1").endswith("GO\n")
    assert chain.calls == []
    assert chain.text("last") == "local-1"


@pytest.mark.parametrize(
    "names",
    [
        ["iter_0000010", "iter_0000200"],
        ["checkpoint-10", "checkpoint-200", "final"],
        ["global_step200", "latest"],
    ],
)
def test_checkpoints_without_a_tracker(chain: Chain, names: list[str]) -> None:
    for name in names:
        (chain.folder / "checkpoints" / name).mkdir()
    chain.job(100)
    assert chain.text("job-100") == "200"


def test_the_script_is_sound(chain: Chain) -> None:
    subprocess.run(["bash", "-n", str(chain.guard)], check=True, timeout=20)
    try:
        done = subprocess.run(
            ["shellcheck", "--exclude=SC2016", str(chain.guard)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("shellcheck is not installed here")
    assert done.returncode == 0, done.stdout
