"""Owns the NCCL and EFA variables a job sets by its network, each with why. Few: current stacks choose well.

Not set on purpose, because AWS and NVIDIA advise against it (seed rows 5, 6 and 1077 of the AWS samples):
NCCL_ALGO, NCCL_PROTO, NCCL_BUFFSIZE, NCCL_P2P_NET_CHUNKSIZE, NCCL_TUNER_PLUGIN, RDMAV_*, FI_EFA_FORK_SAFE,
FI_EFA_USE_DEVICE_RDMA, a single pinned interface.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpt_tune.errors import UserError, unknown_name
from gpt_tune.hardware.catalogue import get_node
from gpt_tune.profiles.schema import Site

PROFILES = ("none", "efa", "infiniband")


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable and the reason it is set."""

    name: str
    value: str
    why: str


_EFA = (
    Variable(
        "FI_PROVIDER", "efa", "Libfabric may use EFA only: a missing driver is an error, not slow sockets."
    ),
    Variable(
        "FI_EFA_USE_HUGE_PAGE",
        "0",
        "Huge pages make fork() fail with 'Cannot allocate memory' in data loaders.",
    ),
)
_SOCKETS = Variable(
    "NCCL_SOCKET_IFNAME",
    "^docker,lo,veth",
    "Ranks meet over any interface except those that end inside the node.",
)
_TELL = Variable(
    "GPT_TUNE_NCCL_DEBUG",
    "INFO",
    "One rank a node logs which network NCCL chose; sockets instead of the fast one show at once.",
)
_TELL_WHAT = Variable(
    "NCCL_DEBUG_SUBSYS", "INIT,NET", "Only start-up and network lines, not every collective."
)


def profile_of(site: Site) -> str:
    """The network profile of a site: its own choice, else by the node type, else none."""
    chosen = site.network_profile.strip().lower()
    if chosen:
        if chosen not in PROFILES:
            raise unknown_name("network profile", site.network_profile, PROFILES)
        return chosen
    if not site.node:
        return "none"
    try:
        network = get_node(site.node).network.lower()
    except UserError:
        return "none"
    if "efa" in network:
        return "efa"
    return "infiniband" if "infiniband" in network or "ib" in network.split() else "none"


def variables(site: Site, nodes: int, gpus: int) -> tuple[Variable, ...]:
    """Variables of a job's network: nothing for one node, where no network is used."""
    if nodes < 2 or gpus < 2:
        return ()
    profile = profile_of(site)
    return (*(_EFA if profile == "efa" else ()), _SOCKETS, _TELL, _TELL_WHAT)
