"""What a job costs: the GPUs it holds, whatever it does with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune.profiles.schema import Custom, Profile, Site, Smoke
from gpt_tune.schedulers.local import Local
from gpt_tune.words import gpu_hours_words
from gpt_tune.workflows import launch
from tests.jobs.helpers import cluster, group, partition, smoke

DEV = cluster(partition("dev"), partition("cpu", group("", 10, 0)))


def cost(profile: Profile, tmp_path: Path) -> float | None:
    site = Site(cluster="testbed", run_root=str(tmp_path / "runs"))
    return launch.prepare(profile, cluster=DEV, site=site, scheduler=Local()).gpu_hours


@pytest.mark.parametrize("gpus", [1, 8, 64])
def test_a_smoke_job_costs_the_gpus_it_holds(home: Path, tmp_path: Path, gpus: int) -> None:
    for seconds in (60, 600):
        profile = replace(smoke(gpus=gpus), smoke=Smoke(seconds=seconds))
        assert cost(profile, tmp_path) == pytest.approx(gpus * seconds / 3600)


def test_a_number_of_steps_costs_more_with_more_steps(home: Path, tmp_path: Path) -> None:
    few, many = (cost(replace(smoke(gpus=64), smoke=Smoke(steps=n)), tmp_path) for n in (10, 1000))
    assert few is not None
    assert many == pytest.approx(100 * few)


def test_without_gpus_nothing_is_spent(home: Path, tmp_path: Path) -> None:
    assert cost(smoke(partition="cpu", gpus=4), tmp_path) == 0


def test_a_job_of_the_users_own_costs_nobody_knows_what(home: Path, tmp_path: Path) -> None:
    own = replace(smoke(gpus=64), recipe="custom", custom=Custom(command="echo hello"))
    assert cost(own, tmp_path) is None


@pytest.mark.parametrize(
    ("hours", "words"),
    [(None, "unknown"), (0.0, "no GPU-hours"), (1 / 60, "0.017 GPU-hours"), (1240.5, "1,240.5 GPU-hours")],
)
def test_cost_in_words(hours: float | None, words: str) -> None:
    assert words in gpu_hours_words(hours)
