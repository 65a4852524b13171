"""The same nodes by the name of another partition are no other nodes; sizes the cluster has not are not advised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpt_tune.errors import UserError
from gpt_tune.hardware.sizes import nodes_of
from gpt_tune.schedulers.base import Cluster, NodeGroup
from gpt_tune.schedulers.local import Local
from gpt_tune.workflows import queue
from gpt_tune.workflows.doctor import gpus_of
from gpt_tune.workflows.queue import Wanted, candidates
from tests.jobs.helpers import cluster, group, partition

B200 = replace(group("b200", 8), names="b200-[1-8]")
H100 = replace(group("h100", 4), names="h100-[1-4]")


def there(*long: NodeGroup) -> Cluster:
    return cluster(partition("dev", B200), partition("long", *long, default=False))


def test_other_nodes_are_others() -> None:
    found = [
        d for _, d in candidates(there(B200, H100), Wanted("dev", 16, 8, "b200")) if d.startswith("other")
    ]
    assert found == ["other nodes: h100 of long"]


@pytest.mark.parametrize(("gpus", "words"), [(9999, "Take 64."), (65, "Take 64."), (9, "Take 8 or 16.")])
def test_the_nearest_size_that_there_is(gpus: int, words: str) -> None:
    with pytest.raises(UserError) as refused:
        queue.request(there(B200, H100), gpus)
    assert words in str(refused.value)


def test_a_node_counts_once_in_whatever_partitions_it_is() -> None:
    assert gpus_of(there(B200, H100)) == 8 * 8 + 4 * H100.gpus_per_node
    assert gpus_of(there(B200)) == 64
    assert gpus_of(cluster(partition("dev", replace(B200, names="")))) == 64


@pytest.mark.parametrize(
    ("gpus", "words"), [(9, "8 (1 node) or 16 (2 nodes)"), (17, "16 (2 nodes) or 24 (3 nodes)")]
)
def test_one_node_is_one(gpus: int, words: str) -> None:
    with pytest.raises(UserError) as refused:
        nodes_of(gpus, 8)
    assert words in str(refused.value)


def test_a_job_starts_when_its_row_says() -> None:
    soon, late = "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
    wanted = Wanted("dev", 16, 8, "b200")
    [only] = queue.offers(Local(), there(B200), wanted, expected=soon)
    assert (only.at, only.now) == (soon, True)
    first, *others = queue.offers(Local(), there(B200, H100), wanted, expected=late)
    assert (first.wanted, first.at, first.now) == (wanted, late, False)
    assert wanted not in [o.wanted for o in others]
