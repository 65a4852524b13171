"""What stands in the way of a job is said before anything is written."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import jobs, resources
from gpt_tune.errors import EXIT_USAGE, UserError
from gpt_tune.jobs.preparing import new_run_id
from gpt_tune.profiles.schema import Profile, Resources, Site
from gpt_tune.recipes.base import JobSpec
from gpt_tune.schedulers.base import Cluster
from gpt_tune.schedulers.local import Local
from tests.jobs.helpers import cluster, group, partition, smoke


def prepare(profile: Profile, where: Cluster, tmp_path: Path, **site: Any) -> JobSpec:
    full = Site(**{"run_root": str(tmp_path / "runs"), **site})
    return jobs.prepare(profile, full, where, scheduler=Local())


MIXED = cluster(
    partition("dev"),
    partition("long", group(), group("h100", 4), time_limit_seconds=7 * 86400),
    partition("cpu", group("", 10, 0)),
    partition("small", max_nodes=2),
    partition("off", state="inactive"),
    partition("one", group(nodes=1)),
)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, (8, 8, 1, "")),
        ({"gpus": 64}, (64, 8, 8, "")),
        ({"gpus": 1}, (1, 1, 1, "")),
        ({"gpus": 3}, (3, 3, 1, "")),
        ({"gpus": 8, "gpus_per_node": 4}, (8, 4, 2, "")),
        ({"partition": "long", "gpu": "h100", "gpus": 32}, (32, 8, 4, "h100")),
        ({"partition": "long", "gpus": 16}, (16, 8, 2, "b200")),
        ({"partition": "long", "gpu": "b200", "gpus": 8}, (8, 8, 1, "b200")),
        ({"partition": "cpu"}, (0, 1, 1, "")),
        ({"partition": "cpu", "gpus": 4}, (0, 4, 1, "")),
        ({"partition": "cpu", "gpus": 4, "gpus_per_node": 2}, (0, 2, 2, "")),
    ],
)
def test_sizes(
    home: Path, tmp_path: Path, wanted: dict[str, Any], expected: tuple[int, int, int, str]
) -> None:
    spec = prepare(smoke(**wanted), MIXED, tmp_path)
    assert (spec.gpus, spec.gpus_per_node, spec.nodes, spec.gpu_type) == expected
    assert spec.site.partition == wanted.get("partition", "dev")
    assert spec.run_dir == f"{tmp_path}/runs/{spec.run_id}"
    assert list(tmp_path.iterdir()) == [home]  # nothing written


@pytest.mark.parametrize(
    ("wanted", "site", "words"),
    [
        ({"gpus": 63}, {}, ["63 GPUs", "56", "64"]),
        ({"gpus": 9}, {}, ["9 GPUs", "8", "16"]),
        ({"gpus": 0}, {}, ["0 GPUs"]),
        ({"gpus": -8}, {}, ["-8 GPUs"]),
        ({"gpus": 72}, {}, ["72 GPUs are 9 nodes", "has 8", "at most 64"]),
        ({"gpus": 24, "partition": "small"}, {}, ["3 nodes", "allows 2", "at most 16"]),
        ({"gpus_per_node": 16}, {}, ["16 GPUs a node", "8"]),
        ({"gpus_per_node": 0}, {}, ["0 GPUs a node", "8"]),
        ({"gpus_per_node": 0, "partition": "cpu"}, {}, ["0 tasks"]),
        ({"gpus": 0, "partition": "cpu"}, {}, ["0 "]),
        ({"partition": "dve"}, {}, ["'dve'", "Did you mean 'dev'?", "long"]),
        ({"partition": "zzz"}, {}, ["'zzz'", "dev, long"]),
        ({}, {"partition": "dve"}, ["'dve'"]),
        ({"partition": "off"}, {}, ["off", "inactive", "dev"]),
        ({"gpu": "h100"}, {}, ["no h100", "has b200"]),
        ({"gpu": "b20"}, {}, ["b20"]),
        ({}, {"time_limit": "3:00:00"}, ["3:00:00", "dev", "2:00:00"]),
        ({}, {"time_limit": "UNLIMITED"}, ["UNLIMITED", "2:00:00"]),
        ({}, {"time_limit": "two hours"}, ["'two hours'", "2:00:00"]),
        ({}, {"time_limit": "0"}, ["zero"]),
        ({}, {"run_root": ""}, ["run_root", "gpt-tune site testbed"]),
        ({}, {"run_root": "runs"}, ["'runs'", "absolute"]),
    ],
    ids=lambda v: re.sub(r"\W+", "-", str(v))[:30],
)
def test_one_clear_sentence(
    home: Path, tmp_path: Path, wanted: dict[str, Any], site: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        prepare(smoke(**wanted), MIXED, tmp_path, **site)
    text = str(caught.value)
    assert caught.value.exit_code == EXIT_USAGE
    assert "\n" not in text
    for word in words:
        assert word in text
    assert list(tmp_path.iterdir()) == [home]


@pytest.mark.parametrize("where", ["/proc/nope", "/dev/null", "/dev/null/runs", "FILE", "FILE/runs"])
def test_an_unwritable_run_folder(home: Path, tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    root = where.replace("FILE", f"{tmp_path}/file")
    with pytest.raises(UserError, match="Cannot") as caught:
        prepare(smoke(), cluster(), tmp_path, run_root=root)
    assert caught.value.hint
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "home"]


def test_the_profiles_own_site_wins(home: Path, tmp_path: Path) -> None:
    profile = replace(smoke(gpus=8), site=Site(partition="long", time_limit="4-00:00:00", account="mine"))
    spec = prepare(profile, MIXED, tmp_path, partition="dev", account="other", qos="high")
    assert (spec.site.partition, spec.site.account, spec.site.qos) == ("long", "mine", "high")
    assert (spec.site.cluster, spec.site.scheduler) == ("testbed", "slurm")


def test_the_sites_node_type_does_not_bind_other_partitions(home: Path, tmp_path: Path) -> None:
    """A site that names p6-b200 once may still use a partition of H100 nodes."""
    where = cluster(partition("dev", group("h100")))
    assert prepare(smoke(), where, tmp_path, node="p6-b200").gpus == 8


@pytest.mark.parametrize("gpu", ["", "nvidia", "strange_accelerator"])
def test_gpus_of_no_known_type_are_taken_at_their_word(home: Path, tmp_path: Path, gpu: str) -> None:
    spec = prepare(smoke(gpu="b200", gpus=16), cluster(partition("dev", group(gpu))), tmp_path)
    assert (spec.gpus, spec.nodes, spec.gpu_type) == (16, 2, "")


def test_a_known_type_goes_before_an_unknown_one(home: Path, tmp_path: Path) -> None:
    where = cluster(partition("dev", group("accelerator", 100), group("nvidia_b200", 8)))
    assert prepare(smoke(gpu="b200"), where, tmp_path).gpu_type == "nvidia_b200"
    assert prepare(smoke(gpu="h100"), where, tmp_path).gpu_type == "accelerator"


def test_local_needs_no_run_root(home: Path) -> None:
    here = Local().discover()
    spec = jobs.prepare(
        Profile(recipe="smoke", resources=Resources(partition="dev")), Site(), here, scheduler=Local()
    )
    assert spec.run_dir.startswith(f"{resources.state_dir()}/runs/r")
    assert (spec.scheduler, spec.nodes) == ("local", 1)


def test_a_cluster_without_partitions(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no partition"):
        prepare(smoke(), Cluster("testbed", "slurm", "22.05", ()), tmp_path)


def test_unknown_recipe(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="smok"):
        prepare(replace(smoke(), recipe="smok"), cluster(), tmp_path)


def test_run_ids_differ_and_sort_by_time() -> None:
    ids = [new_run_id() for _ in range(20)]
    assert len(set(ids)) == 20  # four letters and digits in one second
    assert all(re.fullmatch(r"r\d{8}-\d{6}-[a-z0-9]{4}", i) for i in ids)


@pytest.mark.parametrize(
    ("gpus", "cpus", "most", "has"),
    [
        (0, 1, 8, "no GPUs and 1 CPU"),
        (0, 2, 8, "no GPUs and 2 CPUs"),
        (0, 16, 64, "no GPUs and 16 CPUs"),
        (0, 4000, 1024, "no GPUs and 4000 CPUs"),
        (1, 2, 1, "1 GPU"),
        (8, 2, 8, "8 GPUs"),
        (3, 512, 3, "3 GPUs"),
    ],
)
def test_this_machine_starts_no_more_processes_than_it_bears(
    home: Path, tmp_path: Path, gpus: int, cpus: int, most: int, has: str
) -> None:
    only = replace(group("b200" if gpus else "", 1, gpus), cpus_per_node=cpus)
    here = cluster(partition("local", only), name="local", scheduler="local")
    assert prepare(smoke(gpus=most), here, tmp_path).nodes == 1
    for wanted in (most + 1, 2 * most, 10**22):
        with pytest.raises(UserError, match=rf"{wanted} .* too many: this machine has {has}\. ") as error:
            prepare(smoke(gpus=wanted, gpus_per_node=most), here, tmp_path)
        assert error.value.hint == f"Set resources.gpus to at most {most}."
        assert error.value.exit_code == EXIT_USAGE
