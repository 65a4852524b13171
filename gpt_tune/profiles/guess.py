"""Owns guessing the site of a cluster from what can be seen: nodes, environment variables, mounted file systems."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gpt_tune.hardware import catalogue
from gpt_tune.profiles.schema import Site
from gpt_tune.resources import state_dir


class Group(Protocol):
    """Alike nodes of a partition, as far as guessing needs them (see schedulers.base.NodeGroup)."""

    @property
    def gpu(self) -> str: ...
    @property
    def gpus_per_node(self) -> int: ...
    @property
    def features(self) -> tuple[str, ...]: ...


class PartitionLike(Protocol):
    """See schedulers.base.Partition."""

    @property
    def name(self) -> str: ...
    @property
    def default(self) -> bool: ...
    @property
    def gpus_total(self) -> int: ...
    @property
    def gpus_free(self) -> int: ...
    @property
    def groups(self) -> Sequence[Group]: ...


class ClusterLike(Protocol):
    """See schedulers.base.Cluster; that room stands above this one and cannot be imported here."""

    @property
    def name(self) -> str: ...
    @property
    def scheduler(self) -> str: ...
    @property
    def partitions(self) -> Sequence[PartitionLike]: ...


# File systems that several machines can see, by the name in /proc/mounts.
SHARED_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "wekafs", "fuse.ceph", "fuse.juicefs", "cifs", "orangefs",
     "panfs", "efs", "fuse.glusterfs", "afs"}
)  # fmt: skip
# Where sites usually put scratch space on shared file systems, best first.
_SCRATCH_VARIABLES = ("SCRATCH", "PSCRATCH", "WORK", "SCRATCHDIR", "WORKDIR")
_SHARED_FOLDERS = ("/fsx", "/scratch", "/lustre", "/gpfs", "/shared", "/mnt/shared", "/work", "/data")


def guess(cluster: ClusterLike) -> Site:
    """A site filled in with what can be seen from here: partition, node type, network, run folder, account."""
    partition = best_partition(cluster)
    node = node_id(partition)
    local = cluster.scheduler == "local"
    return Site(
        cluster=cluster.name,
        scheduler="local" if local else "slurm",
        account="" if local else _first_variable("SBATCH_ACCOUNT", "SLURM_ACCOUNT", "SALLOC_ACCOUNT"),
        partition="" if local or partition is None else partition.name,
        qos="" if local else _first_variable("SBATCH_QOS", "SALLOC_QOS"),
        run_root=str(state_dir() / "runs") if local else guess_run_root(),
        node=node,
        network_profile=network_profile(node),
    )


def best_partition(cluster: ClusterLike) -> PartitionLike | None:
    """The partition to offer first: the default when it has GPUs (or nobody has), else the most free GPUs."""
    default = next((p for p in cluster.partitions if p.default), None)
    with_gpus = [p for p in cluster.partitions if p.gpus_total]
    if not with_gpus or (default is not None and default.gpus_total):
        return default or next(iter(cluster.partitions), None)
    return max(with_gpus, key=lambda p: (p.gpus_free, p.gpus_total))


def network_profile(node: str) -> str:
    """ "efa", "infiniband" or "" for a node type of the catalogue."""
    known = catalogue.nodes().get(node)
    network = known.network.lower() if known else ""
    if "efa" in network:
        return "efa"
    return "infiniband" if "infiniband" in network else ""


def guess_run_root() -> str:
    """A folder for runs on a shared file system, as well as this machine can tell."""
    user = os.environ.get("USER") or Path.home().name
    for variable in _SCRATCH_VARIABLES:
        value = os.environ.get(variable, "")
        if value.startswith("/") and Path(value).is_dir() and os.access(value, os.W_OK):
            return f"{value.rstrip('/')}/gpt-tune"
    shared = _shared_mounts()
    for folder in (*_SHARED_FOLDERS, *shared):
        if folder in shared:
            for candidate in (f"{folder}/{user}", folder):
                if Path(candidate).is_dir() and os.access(candidate, os.W_OK):
                    return f"{candidate}/gpt-tune" if candidate != folder else f"{folder}/{user}/gpt-tune"
    return str(Path.home() / "gpt-tune-runs")


def _shared_mounts() -> list[str]:
    try:
        lines = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    rows = [line.split() for line in lines]
    return [r[1] for r in rows if len(r) > 2 and r[2] in SHARED_FILE_SYSTEMS and r[1] != "/"]


def node_id(partition: PartitionLike | None) -> str:
    """The node type of the catalogue that a partition's nodes are, by features and GPU type."""
    for group in partition.groups if partition else ():
        for feature in group.features:
            for node in catalogue.nodes().values():
                if feature.lower() in (node.id, node.instance, *node.aliases):
                    return node.id
        gpu = catalogue.guess_gpu(group.gpu) if group.gpu else None
        if gpu:
            node = catalogue.node_for(gpu, group.gpus_per_node or None)
            return node.id if node.id in catalogue.nodes() else ""
    return ""


def _first_variable(*variables: str) -> str:
    return next((os.environ[v] for v in variables if os.environ.get(v)), "")
