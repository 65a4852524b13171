"""A real slurmctld with ten thousand nodes: looking at it costs little more than its own sinfo."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from gpt_tune.schedulers import slurm_nodes
from gpt_tune.schedulers.slurm_cli import SlurmCli
from tests import cluster as private_cluster
from tests.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
# Cloud nodes that are powered down need no slurmd, and are offered as idle.
_EXTRA = """\
NodeName=big-[00001-10000] NodeAddr=127.0.0.1 Port=16999 CPUs=192 RealMemory=2000000 Gres=gpu:b200:8 State=CLOUD
PartitionName=huge Nodes=big-[00001-10000] MaxTime=7-00:00:00
PartitionName=half Nodes=big-[00001-05000] MaxTime=1-00:00:00
PrivateData=cloud"""
MOST = 1.5  # times sinfo's own call


@pytest.fixture(scope="module")
def huge(slurm_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    cluster = private_cluster.start(extra=_EXTRA, name="huge")
    yield cluster
    cluster.stop()


def fastest(*kinds: Callable[[], object], times: int = 12) -> list[float]:
    """Seconds of the quickest of several calls of each kind, by turns: the others had to share the machine."""
    seconds: list[list[float]] = [[] for _ in kinds]
    for _ in range(times):
        for taken, do in zip(seconds, kinds):
            begin = time.perf_counter()
            do()
            taken.append(time.perf_counter() - begin)
    return [min(taken) for taken in seconds]


def test_clusters_costs_little_more_than_sinfo(
    huge: SlurmCluster, home: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(huge.conf))
    monkeypatch.setenv("PATH", huge.env["PATH"])
    partitions = {p.name: p for p in SlurmCli().discover().partitions}
    (group,) = partitions["huge"].groups
    assert (group.nodes, group.gpus_free, group.names) == (10_000, 80_000, "big-[00001-10000]")
    assert partitions["half"].gpus_total == 40_000
    own, ours = fastest(
        lambda: subprocess.run(slurm_nodes.ARGUMENTS, capture_output=True, check=True),
        lambda: SlurmCli().discover(),
    )
    assert ours < MOST * own, f"{ours:.3f} s against sinfo's {own:.3f} s"
