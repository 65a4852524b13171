"""Owns the time of collectives and sends: which link a group uses, and how long bytes take on it.

Ranks are ordered as Megatron and DeepSpeed order them: tensor parallel innermost, then context, data, pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt_tune.timing.constants import Constants

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


# Share of a pair's fixed time that does not grow with the ring: 8.4 us to start and 3.4 us for each of its two
# hops (NCCL's own model, src/graph/tuning.cc: base and NVLink hop latency of a ring, simple protocol).
RING_START = 8.4 / (8.4 + 2 * 3.4)
LARGEST_RING = 8.0


@dataclass(frozen=True, slots=True)
class Link:
    """What groups of ranks communicate over.

    ring_rate: bus bandwidth of ring collectives, bytes/s. local: members of a group on one node.
    latency: fixed seconds of one operation, 0 for groups of one.
    """

    ranks: Floats
    local: Floats
    ring_rate: Floats
    latency: Floats


def group(size: Ints, stride: Ints, domain: int, constants: Constants) -> Link:
    """The link of groups of `size` ranks that stand `stride` apart; `domain` GPUs share the fast link.

    A ring over several nodes crosses each node boundary once per local member, each with its own NIC, so
    its bus bandwidth is local x NIC rate, at most the fast link's.
    """
    local = np.clip(domain // stride, 1, size).astype(np.float64)
    ranks = size.astype(np.float64)
    crosses = ranks > local
    inside = constants.intra_rate * _part_of_node(local, domain, constants.intra_pair)
    across = local * constants.inter_rate
    hops = constants.inter_latency * (1.0 + np.log2(ranks / local))
    latency = np.where(crosses, hops, 0.0) + np.where(local > 1, constants.intra_latency * _steps(local), 0.0)
    return Link(
        ranks=ranks,
        local=local,
        ring_rate=np.where(crosses, np.where(local > 1, np.minimum(across, inside), across), inside),
        latency=np.where(ranks > 1, latency, 0.0),
    )


def _steps(local: Floats) -> Floats:
    """Fixed time of a ring of `local` GPUs over that of a pair: a start, and a hop for each further GPU.

    A node's switch (eight GPUs, or the multicast of larger domains) bounds the ring.
    """
    result: Floats = RING_START + (1.0 - RING_START) * (np.minimum(local, LARGEST_RING) - 1.0)
    return result


def _part_of_node(local: Floats, domain: int, pair: float) -> Floats:
    """Bus bandwidth of `local` GPUs of a node over that of all: `pair` for two, 1 for all, geometric between."""
    if domain <= 2 or pair == 1.0:
        return np.ones_like(local)
    missing = (np.log2(domain) - np.log2(np.maximum(local, 2.0))) / (np.log2(domain) - 1.0)
    result: Floats = pair ** np.maximum(missing, 0.0)
    return result


def gather(link: Link, n_bytes: Floats) -> Floats:
    """Seconds of an all-gather or reduce-scatter whose whole buffer has n_bytes."""
    share: Floats = (link.ranks - 1.0) / link.ranks
    return share * n_bytes / link.ring_rate + link.latency


def all_reduce(link: Link, n_bytes: Floats) -> Floats:
    """Seconds of an all-reduce of a buffer of n_bytes on each rank."""
    share: Floats = 2.0 * (link.ranks - 1.0) / link.ranks
    return share * n_bytes / link.ring_rate + link.latency


def all_to_all(link: Link, n_bytes: Floats, constants: Constants) -> Floats:
    """Seconds of an all-to-all in which each rank holds n_bytes: what leaves the node uses its own NIC."""
    inside = n_bytes * (link.local - 1.0) / link.ranks
    outside = n_bytes * (link.ranks - link.local) / link.ranks
    slowest: Floats = np.maximum(inside / constants.intra_rate, outside / constants.inter_rate)
    return slowest + link.latency


def send(crosses: NDArray[np.bool_], n_bytes: Floats, constants: Constants) -> Floats:
    """Seconds of one point-to-point transfer."""
    rate = np.where(crosses, constants.inter_rate, constants.intra_rate)
    latency = np.where(crosses, constants.inter_latency, constants.intra_latency)
    result: Floats = n_bytes / rate + latency
    return result
