"""Submit exactly once through ssh, whenever gpt-tune or the connection dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.jobs import reconciling
from gpt_tune.schedulers.ssh_slurm import SshSlurm
from tests.cluster import SlurmCluster
from tests.jobs import test_once as once
from tests.ssh.test_cluster import laptop

__all__ = ["laptop"]
pytestmark = pytest.mark.slurm


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciling, "_SETTLE_SECONDS", 0.0)


def test_random_moments_through_ssh(laptop: SshSlurm, slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    once.random_kills(slurm_cluster, tmp_path / "runs", 2, "up", "faraway")


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["up", "down", "slow"])
def test_many_random_moments_through_ssh(
    laptop: SshSlurm, slurm_cluster: SlurmCluster, tmp_path: Path, condition: str
) -> None:
    once.random_kills(slurm_cluster, tmp_path / "runs", 20, condition, "faraway")
