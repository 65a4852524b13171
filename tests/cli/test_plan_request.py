"""Tests of a plan for a cluster that has fewer GPUs than the plan is for."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run
from tests.jobs.helpers import cluster, group, partition


@pytest.mark.parametrize(("gpus", "noted"), [(8, False), (16, False), (24, True), (64, True)])
@pytest.mark.parametrize("named", [(), ("--partition", "dev")])
def test_more_gpus_than_the_partition_has(
    gpt_tune: Run, monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...], gpus: int, noted: bool
) -> None:
    found = cluster(partition("dev", group("b200", 2)), partition("big", group("b200", 64)))
    monkeypatch.setattr("gpt_tune.clusters.discover", lambda name: found)
    done = gpt_tune(
        "plan", "--model", "gpt-1.3b", "--gpus", gpus, "--cluster", "testbed", *named, "--top", "1", "--json"
    )
    assert (done.code, done.json["gpus"]) == (0, gpus)
    assert ("partition dev of testbed has only 16" in done.err) is noted
