"""Owns finding out what a profile runs on: node type, GPUs, nodes; from the profile, the site and the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpt_tune.errors import UserError, unknown_name
from gpt_tune.hardware import catalogue
from gpt_tune.hardware.parts import Node
from gpt_tune.hardware.sizes import nodes_of
from gpt_tune.jobs.preparing import choose_group, choose_partition
from gpt_tune.profiles.schema import Profile, Site
from gpt_tune.schedulers.base import Cluster, NodeGroup, Partition


@dataclass(frozen=True, slots=True)
class Machine:
    """What a job asks for. node is None where no GPU is involved (smoke on a laptop).

    gpus_per_node: what the job takes of each node. node_gpus: what a whole node has.
    """

    gpus: int
    gpus_per_node: int
    nodes: int
    node_gpus: int
    node: Node | None
    partition: Partition | None


def machine_of(profile: Profile, site: Site | None = None, cluster: Cluster | None = None) -> Machine:
    """The size and node type of a job. UserError for an unknown partition or an illegal number of GPUs."""
    site = site or Site()
    partition = partition_of(profile, site, cluster)
    group = choose_group(profile, site, partition) if partition else None
    node = node_of(profile, site, group)
    per_node = gpus_per_node_of(profile, group, node)
    gpus = profile.resources.gpus or per_node
    return Machine(gpus, min(gpus, per_node), nodes_of(gpus, per_node), per_node, node, partition)


def partition_of(profile: Profile, site: Site, cluster: Cluster | None) -> Partition | None:
    """The partition a job goes to: the profile's, the site's, or the cluster's own. None without a cluster."""
    if cluster is None:
        return None
    return choose_partition(cluster, profile.resources.partition or profile.site.partition or site.partition)


def check_given_partition(cluster: Cluster, changes: Iterable[str]) -> None:
    """UserError for a partition named on the command line (KEY=VALUE) that the cluster does not have.

    A profile's own partition is let through on this machine, so that a cluster's profile runs here too; one
    that was just typed is a mistake.
    """
    names = [p.name for p in cluster.partitions]
    for change in changes:
        key, _, value = change.partition("=")
        wanted = value.strip()
        if key.strip() in ("resources.partition", "site.partition") and wanted and wanted not in names:
            error = unknown_name("partition", wanted, names, f"cluster {cluster.name}")
            raise UserError(error.message, f"Partitions: {', '.join(names[:12])}.")


def node_of(profile: Profile, site: Site, group: NodeGroup | None) -> Node | None:
    """The node type to plan with, or None when nothing says which GPUs there are.

    What the profile names counts first. The site's node type counts where it fits the partition's GPUs:
    a cluster may have partitions of different GPUs.
    """
    per_node = profile.resources.gpus_per_node
    named = profile.resources.node or profile.site.node or profile.resources.gpu
    if named:
        return catalogue.node_for(named, per_node)
    gpu = catalogue.guess_gpu(group.gpu) if group else None
    of_site = catalogue.node_for(site.node, per_node) if site.node else None
    if of_site is not None and gpu in (None, of_site.gpu.id):
        return of_site
    return catalogue.node_for(gpu, per_node or (group.gpus_per_node if group else None)) if gpu else None


def gpus_per_node_of(profile: Profile, group: NodeGroup | None, node: Node | None) -> int:
    """GPUs (tasks, where there are none) on one node."""
    if profile.resources.gpus_per_node:
        return profile.resources.gpus_per_node
    if group:
        return group.gpus_per_node
    return node.gpus_per_node if node else max(1, profile.resources.gpus or 1)


def has_gpus(cluster: Cluster | None, partition: Partition | None) -> bool:
    """Whether a job can get GPUs there; True when only planning (no cluster)."""
    if cluster is None:
        return True
    return bool(partition.gpus_total if partition else any(p.gpus_total for p in cluster.partitions))
