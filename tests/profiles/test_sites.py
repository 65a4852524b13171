"""Tests of sites: kept once, guessed from what is seen, laid under a profile's own settings."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.profiles import guess, sites
from gpt_tune.profiles.schema import Environment, Site
from gpt_tune.schedulers.base import Cluster, NodeGroup, Partition

pytestmark = pytest.mark.usefixtures("home")


def group(gpu: str, per_node: int, nodes: int = 8, free: int | None = None, **more: object) -> NodeGroup:
    total = nodes * per_node
    return NodeGroup(
        nodes=nodes,
        nodes_by_state={"idle": nodes},
        gpu=gpu,
        gpus_per_node=per_node,
        gpus_free=total if free is None else free,
        cpus_per_node=64,
        memory_mib_per_node=1000,
        **more,  # type: ignore[arg-type]
    )


def cluster(*partitions: Partition, scheduler: str = "slurm", name: str = "dev") -> Cluster:
    return Cluster(name, scheduler, "24.11", partitions)


def partition(name: str, *groups: NodeGroup, default: bool = False) -> Partition:
    return Partition(name, default, "up", None, None, groups)


def test_kept_privately_and_read_back() -> None:
    site = Site(cluster="dev", scheduler="slurm", run_root="/shared/x", account="a")
    path = sites.save(site)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sites.load("dev") == site
    assert sites.load("other") is None
    assert sites.names() == ["dev"]


@pytest.mark.parametrize(
    ("site", "words"),
    [
        (Site(scheduler="slurm", run_root="/x"), "names no cluster"),
        (Site(cluster="dev", scheduler="slurm"), "run folder"),
        (Site(cluster="dev", scheduler="slurm", run_root="x"), "absolute"),
        (Site(cluster="dev", run_root="/x", time_limit="two hours"), "notation"),
    ],
)
def test_what_is_missing_is_said(site: Site, words: str) -> None:
    with pytest.raises(UserError, match=words):
        sites.save(site)


@pytest.mark.parametrize("name", ["", "a/b", "../x", "-x"])
def test_a_cluster_name_never_leaves_the_folder(name: str) -> None:
    with pytest.raises(UserError):
        sites.path_of(name)


@pytest.mark.parametrize("limit", ["30", "2:00:00", "1-12", "1-12:00", "1-12:00:00", "30:00", "UNLIMITED"])
def test_slurm_time_limits(limit: str) -> None:
    assert sites.problems(Site(cluster="d", scheduler="slurm", run_root="/x", time_limit=limit)) == []


def test_merging_takes_what_the_profile_says() -> None:
    base = Site(
        cluster="dev",
        account="a",
        environment=Environment("pyxis", image="i", variables={"A": "1", "B": "2"}),
    )
    over = Site(account="b", environment=Environment(variables={"B": "3"}))
    merged = sites.merge(base, over)
    assert (merged.cluster, merged.account) == ("dev", "b")
    assert merged.environment == Environment("pyxis", image="i", variables={"A": "1", "B": "3"})
    assert sites.merge(base, Site()) == base


def test_guess_prefers_the_default_partition_with_gpus() -> None:
    found = cluster(partition("cpu", group("", 0)), partition("gpu", group("b200", 8), default=True))
    assert sites.guess(found).partition == "gpu"


def test_guess_takes_the_free_gpus_when_the_default_has_none() -> None:
    found = cluster(
        partition("cpu", group("", 0), default=True),
        partition("busy", group("h100", 8, free=0)),
        partition("free", group("h100", 8)),
    )
    assert sites.guess(found).partition == "free"


def test_guess_of_the_node_type() -> None:
    assert sites.guess(cluster(partition("p", group("nvidia_h100_80gb_hbm3", 8)))).node == "dgx-h100"
    by_feature = sites.guess(cluster(partition("p", group("b200", 8, features=("p6-b200.48xlarge",)))))
    assert (by_feature.node, by_feature.network_profile) == ("p6-b200", "efa")
    assert sites.guess(cluster(partition("p", group("strange", 8)))).node == ""
    assert sites.guess(cluster()).partition == ""


def test_guess_of_this_machine_needs_nothing() -> None:
    local = sites.guess(
        cluster(partition("local", group("", 0), default=True), scheduler="local", name="local")
    )
    assert local.scheduler == "local"
    assert sites.problems(local) == []


def test_account_comes_from_slurms_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_ACCOUNT", "proj1")
    assert sites.guess(cluster(partition("p", group("h100", 8)))).account == "proj1"


def test_run_folder_from_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    assert guess.guess_run_root() == f"{tmp_path}/gpt-tune"
    monkeypatch.setenv("SCRATCH", str(tmp_path / "missing"))
    assert guess.guess_run_root() != f"{tmp_path}/missing/gpt-tune"
