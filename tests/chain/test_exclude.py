"""Broken nodes: found from what the log says, kept per cluster with date and reason, and left out from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune import clusters
from gpt_tune.diagnosis.types import Action, Finding
from gpt_tune.errors import UserError
from gpt_tune.ledger import RunRecord
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Profile, Resources, Site
from gpt_tune.workflows import launch
from gpt_tune.workflows.exclude import Exclusion, exclude, include, node_of, offers
from tests.cluster import SlurmCluster

NODES = ["b200-1", "b200-2", "b200-3"]


def finding(
    host: str | None = None,
    rank: int | None = None,
    action: Action | None = "exclude_host",
    echo: str | None = None,
) -> Finding:
    return Finding(
        "F50", "error", "The GPU fell off the bus.", "fix", host=host, rank=rank, action=action, echo_of=echo
    )


@pytest.mark.parametrize(
    ("host", "rank", "node"),
    [
        ("b200-2", None, "b200-2"),
        ("b200-2.cluster.example.org", None, "b200-2"),
        (None, 0, "b200-1"),
        (None, 17, "b200-3"),
        ("ip-10-0-0-7", 9, "b200-2"),
        (None, 24, None),
        (None, None, None),
        ("elsewhere", None, None),
    ],
)
def test_which_node_a_finding_is_about(host: str | None, rank: int | None, node: str | None) -> None:
    assert node_of(finding(host, rank), NODES, 8) == node


def test_a_job_of_one_node_has_only_that_one() -> None:
    assert node_of(finding(), ["n7"], 8) == "n7"


def record(scheduler: str = "slurm") -> RunRecord:
    return RunRecord(
        "r", "t", "uni", scheduler, "n", "smoke", "/r", "/r/job", "2026-11-30T07:00:00Z", node_list="b200-[1-3]",
        gpus=24, nodes=3,
    )  # fmt: skip


def test_offers_are_for_hardware_once_a_node() -> None:
    found = offers(
        record(), [finding(rank=1), finding("b200-1"), finding("b200-3"), finding("b200-2", action=None),
                   finding("b200-2", echo="F50")],
    )  # fmt: skip
    assert [(o.node, o.option) for o in found] == [
        ("b200-1", "--exclude=b200-1"), ("b200-3", "--exclude=b200-3"),
    ]  # fmt: skip
    assert offers(record("local"), [finding("b200-1")]) == []


def test_the_list_keeps_date_and_reason(home: Path) -> None:
    sites.save(Site(cluster="uni", scheduler="slurm", run_root="/runs", exclude_nodes=("old",)))
    exclude(Exclusion("uni", "b200-2", "F50: The GPU fell off the bus."), "2026-11-30")
    exclude(Exclusion("uni", "b200-2", "F50: The GPU fell off the bus."), "2026-12-01")
    kept = sites.load("uni")
    assert kept is not None
    assert kept.exclude_nodes == ("old", "b200-2")
    assert kept.exclude_reasons == {"b200-2": "2026-12-01 F50: The GPU fell off the bus."}
    assert include("uni", "b200-2").exclude_nodes == ("old",)
    assert sites.load("uni") == include_nothing()
    with pytest.raises(UserError, match="not excluded"):
        include("uni", "b200-2")


def include_nothing() -> Site:
    return Site(cluster="uni", scheduler="slurm", run_root="/runs", exclude_nodes=("old",))


@pytest.mark.slurm
def test_further_jobs_avoid_it(slurm: SlurmCluster, tmp_path: Path) -> None:
    sites.save(Site(cluster="testbed", scheduler="slurm", run_root=str(tmp_path / "runs")))
    exclude(Exclusion("testbed", "b200-1", "F50: x"))
    profile = Profile(recipe="smoke", resources=Resources(gpus=8, partition="dev"))
    run = launch.submit(launch.prepare(profile))
    assert run.job_id is not None
    assert "ExcNodeList=b200-1" in slurm.run("scontrol", "show", "job", run.job_id)
    clusters.connect().cancel(run.job_id)
