"""Owns testing which link a group of ranks gets and what collectives cost on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpt_tune.layouts.layout import Trainer
from gpt_tune.timing import network
from gpt_tune.timing.constants import Constants, resolve
from tests.timing.cases import node


@pytest.fixture
def constants() -> Constants:
    """Round figures: 400 GB/s inside a node, 25 GB/s a NIC."""
    plain = resolve(node(), Trainer(), None)
    return replace(
        plain, intra_rate=400e9, inter_rate=25e9, intra_latency=0.0, inter_latency=0.0, intra_pair=1.0
    )


def group(size: int, stride: int, constants: Constants, domain: int = 8) -> network.Link:
    return network.group(np.array([size]), np.array([stride]), domain, constants)


GIB = np.array([1e9])


@pytest.mark.parametrize(
    ("size", "stride", "rate"),
    [
        (8, 1, 400e9),  # a node
        (2, 4, 400e9),  # strided, still one node
        (2, 8, 25e9),  # one rank a node: its own NIC
        (16, 1, 200e9),  # whole nodes: eight NICs
        (4, 4, 50e9),  # two ranks on each of two nodes
        (64, 2, 100e9),  # four ranks a node
        (3, 5, 25e9),  # a stride that does not divide the node
    ],
)
def test_a_ring_uses_the_nics_of_its_members(
    size: int, stride: int, rate: float, constants: Constants
) -> None:
    assert group(size, stride, constants).ring_rate[0] == rate


def test_many_nics_are_no_faster_than_nvlink(constants: Constants) -> None:
    assert group(16, 1, replace(constants, inter_rate=100e9)).ring_rate[0] == 400e9


def test_volumes(constants: Constants) -> None:
    eight = group(8, 1, constants)
    assert network.gather(eight, GIB)[0] == pytest.approx(7 / 8 / 400)
    assert network.all_reduce(eight, GIB)[0] == pytest.approx(2 * 7 / 8 / 400)
    # All-to-all over two nodes: half of the bytes leave by the rank's own NIC.
    assert network.all_to_all(group(16, 1, constants), GIB, constants)[0] == pytest.approx(0.5 / 25)
    assert network.all_to_all(eight, GIB, constants)[0] == pytest.approx(7 / 8 / 400)


def test_one_rank_costs_nothing() -> None:
    alone = group(1, 8, resolve(node(), Trainer(), None))
    assert network.all_reduce(alone, GIB)[0] == 0
    assert network.gather(alone, GIB)[0] == 0


def test_small_messages_are_bound_by_latency() -> None:
    plain = resolve(node(), Trainer(), None)
    pair, inside, across = group(2, 1, plain), group(8, 1, plain), group(16, 1, plain)
    tiny = np.array([8.0])
    assert network.all_reduce(pair, tiny)[0] == pytest.approx(plain.intra_latency, rel=0.01)
    assert network.all_reduce(across, tiny)[0] > network.all_reduce(inside, tiny)[0] + plain.inter_latency


def test_a_longer_ring_starts_later_up_to_the_switch() -> None:
    plain = resolve(node(), Trainer(), None)
    tiny = np.array([8.0])
    times = [float(network.all_reduce(group(n, 1, plain, 72), tiny)[0]) for n in (2, 4, 8, 16, 72)]
    assert times[0] < times[1] < times[2]
    assert times[2:] == pytest.approx([times[2]] * 3, rel=0.01)
    # A start of 8.4 us and two hops of 3.4 us for a pair; 14 hops for eight.
    assert times[2] / times[0] == pytest.approx((8.4 + 14 * 3.4) / (8.4 + 2 * 3.4), rel=0.01)


def test_pairs_may_be_slower_than_the_whole_node(constants: Constants) -> None:
    slow = replace(constants, intra_pair=0.25)
    rates = [group(size, 1, slow).ring_rate[0] for size in (2, 4, 8)]
    assert rates == pytest.approx([100e9, 200e9, 400e9])


def test_a_send_crosses_or_not(constants: Constants) -> None:
    times = network.send(np.array([False, True]), np.array([4e9, 4e9]), constants)
    assert times.tolist() == pytest.approx([4 / 400, 4 / 25])
