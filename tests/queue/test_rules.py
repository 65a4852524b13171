"""What `sbatch --test-only` and `scontrol show job` say, and which other requests are worth asking about."""

from __future__ import annotations

import pytest

from gpt_tune.schedulers import slurm_starts
from gpt_tune.schedulers.base import JobStatus, Unreachable
from gpt_tune.schedulers.slurm_shown import parse
from gpt_tune.workflows.adopt import gpus_of, log_paths
from gpt_tune.workflows.queue import Wanted, candidates, free_gpus, options
from tests.jobs.helpers import cluster, group, partition


@pytest.mark.parametrize(
    ("words", "at", "nodes"),
    [
        ("sbatch: Job 42 to start at 1796022000 using 384 processors on nodes b200-[1-2] in partition dev",
         "2026-11-30T07:00:00Z", "b200-[1-2]"),
        ("sbatch: Job 42 to start at 1796022000 a using 8 processors on n1", "2026-11-30T07:00:00Z", ""),
        ("sbatch: warning: can't run 1 processes on 2 nodes\nsbatch: Job 7 to start at 1796022000 using 2 processors "
         "on nodes n[1-2] in partition long", "2026-11-30T07:00:00Z", "n[1-2]"),
    ],
)  # fmt: skip
def test_when_it_could_start(words: str, at: str, nodes: str) -> None:
    found = slurm_starts.parse_test_only(words, 0)
    assert (found.at, found.nodes, found.refusal) == (at, nodes, "")


def test_when_it_cannot() -> None:
    found = slurm_starts.parse_test_only(
        "allocation failure: Requested node configuration is not available", 1
    )
    assert (found.at, found.refusal) == (
        None,
        "allocation failure: Requested node configuration is not available",
    )
    assert slurm_starts.parse_test_only("", 0).refusal
    with pytest.raises(Unreachable):
        slurm_starts.parse_test_only("sbatch: error: Unable to contact slurm controller (connect failure)", 1)


FULL = group("b200", 8, 8, allocated=6, idle=2)
LONG = partition("long", group("h100", 4), time_limit_seconds=7 * 86400, default=False)


def test_other_requests_worth_asking_about() -> None:
    wanted = Wanted("dev", 64, 8, "b200", "2:00:00")
    found = candidates(cluster(partition("dev", FULL), LONG), wanted)
    assert found[0] == (wanted, "")
    assert [(w.gpus, w.time_limit, different) for w, different in found[1:]] == [
        (64, "0:30:00", "shorter"), (64, "1:00:00", "shorter"), (32, "2:00:00", "smaller"), (16, "2:00:00", "smaller"),
    ]  # fmt: skip


def test_other_nodes_only_where_it_fits() -> None:
    wanted = Wanted("dev", 32, 8, "b200")
    found = [d for _, d in candidates(cluster(partition("dev", FULL), LONG), wanted)]
    assert "other nodes: h100 of long" in found
    down = partition("long", group("h100", 4), state="down", default=False)
    assert not [
        d for _, d in candidates(cluster(partition("dev", FULL), down), wanted) if d.startswith("other")
    ]
    too_large = Wanted("dev", 40, 8, "b200")
    found = [d for _, d in candidates(cluster(partition("dev", FULL), LONG), too_large)]
    assert not [d for d in found if d.startswith("other")]


@pytest.mark.parametrize("gpus", [1, 2, 8, 9, 64])
def test_candidates_are_legal_and_once(gpus: int) -> None:
    wanted = Wanted("dev", gpus, 8)
    found = [w for w, _ in candidates(cluster(partition("dev", FULL), LONG), wanted)]
    assert len(found) == len(set(found))
    for w in found:
        assert 0 < w.gpus <= gpus
        assert w.gpus <= 8 or w.gpus % 8 == 0 or w.gpus == gpus


def test_a_request_in_sbatchs_words() -> None:
    assert options(Wanted("dev", 16, 8, "b200", "1:00:00"), None) == [
        "--nodes=2", "--ntasks-per-node=8", "--gres=gpu:b200:8", "--partition=dev", "--time=1:00:00",
    ]  # fmt: skip
    assert "--gres=gpu:4" in options(Wanted("dev", 4, 8), None)


def test_free_gpus_by_type() -> None:
    free = free_gpus(cluster(partition("dev", FULL), LONG))
    assert [(f.partition, f.gpu, f.total, f.whole_nodes) for f in free] == [
        ("dev", "b200", 64, 2), ("long", "h100", 32, 4),
    ]  # fmt: skip


SHOWN = """JobId=12 JobName=my job
   UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A
   NumNodes=2 NumCPUs=16 NumTasks=16 CPUs/Task=1
   TRES=cpu=16,node=2,billing=16,gres/gpu=16
   Command=/home/ann/it is/train.sh --lr=3e-4
   WorkDir=/home/ann/it is
   StdErr=/home/ann/logs/a b=c-12.err
   StdOut=/home/ann/logs/a b=c-12.out
"""


def test_a_job_as_scontrol_shows_it() -> None:
    shown = parse(SHOWN)
    assert shown["Command"] == "/home/ann/it is/train.sh --lr=3e-4"
    assert shown["NumNodes"] == "2"
    assert gpus_of(shown) == 16
    status = JobStatus("12", "my job", "RUNNING", log_paths=("/elsewhere",))
    assert log_paths(status, shown) == ("/home/ann/logs/a b=c-12.out", "/home/ann/logs/a b=c-12.err")
    assert log_paths(status, {}) == ("/elsewhere",)
    assert log_paths(status, {"StdOut": "/dev/null", "StdErr": "/dev/null"}) == ("/elsewhere",)
    assert parse("") == {}
    assert gpus_of({}) == 0
