"""Owns turning choices into a job with nothing left to decide, or saying what is in the way."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from gpt_tune import clusters, recipes, resources
from gpt_tune.errors import UserError, unknown_name
from gpt_tune.hardware import catalogue
from gpt_tune.hardware.sizes import most_processes, nodes_of
from gpt_tune.models import catalogue as models
from gpt_tune.models.shape import ModelShape
from gpt_tune.planner.types import Plan
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Profile, Site
from gpt_tune.recipes import smoke_prediction
from gpt_tune.recipes.base import JobSpec
from gpt_tune.schedulers import slurm_words
from gpt_tune.schedulers.base import Cluster, NodeGroup, Partition, Scheduler

_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that look alike


def prepare(
    profile: Profile,
    site: Site,
    cluster: Cluster,
    plan: Plan | None = None,
    *,
    scheduler: Scheduler | None = None,
    run_dir: str | None = None,
) -> JobSpec:
    """Check everything that can be checked before a submission, and settle it. Writes nothing.

    site: the cluster's; the profile's own settings win over it. run_dir: another run folder than a new one
    under the site's. UserError names the one thing to change.
    """
    full = replace(
        sites.merge(site, profile.site),
        cluster=cluster.name,
        scheduler="local" if cluster.scheduler == "local" else "slurm",
    )
    for sentence in recipes.get(profile.recipe).problems(profile):
        raise UserError(
            sentence, f"Change the profile, or choose another recipe: {', '.join(recipes.names())}."
        )
    partition = choose_partition(cluster, profile.resources.partition or full.partition)
    group = choose_group(profile, full, partition)
    check_local_size(cluster, profile.resources.gpus)
    gpus, per_node, nodes = _size(profile, partition, group, plan)
    check_time_limit(full.time_limit, partition)
    run_id, token = new_run_id(), f"gpt-tune-{secrets.token_hex(8)}"
    folder = run_dir or f"{run_root(full)}/{run_id}"
    (scheduler or clusters.connect(cluster.name)).files.check_writable(folder)
    if full.scheduler == "slurm":
        full = replace(full, partition=partition.name)
    return JobSpec(
        run_id=run_id,
        token=token,
        run_dir=folder,
        scheduler=full.scheduler,
        profile=profile,
        site=full,
        model=model_of(profile),
        gpus=gpus,
        gpus_per_node=per_node,
        nodes=nodes,
        plan=plan,
        gpu_type=group.gpu if group and _is_mixed(partition) else "",
    )


def new_run_id(now: datetime | None = None) -> str:
    """An id that is never used twice and sorts by time: r20261130-071533-k3f9."""
    stamp = (now or datetime.now(timezone.utc)).strftime("%Y%m%d-%H%M%S")
    return f"r{stamp}-{''.join(secrets.choice(_ID_LETTERS) for _ in range(4))}"


def run_root(site: Site) -> str:
    """The folder that holds run folders, absolute."""
    if not site.run_root:
        if site.scheduler == "local":
            return str(resources.state_dir() / "runs")
        raise UserError(
            f"The site of cluster {site.cluster} names no run folder (run_root).",
            f"Set a folder that all nodes see: gpt-tune site {site.cluster} --set run_root=/path --save",
        )
    path = Path(site.run_root).expanduser()
    if not path.is_absolute():
        raise UserError(f"The run folder {site.run_root!r} is not an absolute path.", "Start it with '/'.")
    return str(path).rstrip("/")


def model_of(profile: Profile) -> ModelShape:
    """The model a job trains: the smoke job's own small one, else the profile's."""
    if profile.recipe == "smoke":
        return smoke_prediction.shape(profile.smoke)
    return models.get(profile.model.id)


# -- partition and nodes --------------------------------------------------------------------------
def choose_partition(cluster: Cluster, wanted: str) -> Partition:
    """The named partition, or the default one (with GPUs, where some have them)."""
    if not cluster.partitions:
        raise UserError(f"Cluster {cluster.name} shows you no partition.", "Ask its support for access.")
    if not wanted:
        with_gpus = [p for p in cluster.partitions if p.gpus_total] or list(cluster.partitions)
        return next((p for p in with_gpus if p.default), with_gpus[0])
    if cluster.scheduler == "local":  # a profile made for a cluster runs here too
        return cluster.partitions[0]
    found = next((p for p in cluster.partitions if p.name == wanted), None)
    if found is None:
        names = [p.name for p in cluster.partitions]
        error = unknown_name("partition", wanted, names, f"cluster {cluster.name}")
        listed = f"Partitions: {', '.join(names[:12])}."
        raise UserError(error.message, f"{error.hint} {listed}" if "Did you" in error.hint else listed)
    if found.state not in ("up", ""):
        up = [p.name for p in cluster.partitions if p.state == "up"]
        raise UserError(
            f"Partition {wanted} of {cluster.name} is {found.state}: it starts no jobs.",
            f"Use {' or '.join(up[:4])}." if up else "Ask the cluster's support.",
        )
    return found


def choose_group(profile: Profile, site: Site, partition: Partition) -> NodeGroup | None:
    """The nodes a job is for: those with the profile's GPU, else the largest group with GPUs. None: no GPUs."""
    groups = sorted(
        (g for g in partition.groups if g.gpus_per_node),
        key=lambda g: g.nodes * g.gpus_per_node,
        reverse=True,
    )
    wanted = _wanted_gpu(profile, site)
    if not groups or not wanted:
        return groups[0] if groups else None
    known = [catalogue.guess_gpu(g.gpu) for g in groups]
    for answer in (wanted, None):  # a type nobody knows is taken at the user's word
        if answer in known:
            return groups[known.index(answer)]
    if not (profile.resources.gpu or profile.resources.node):
        return groups[0]  # the site's node type is of another partition
    has = ", ".join(dict.fromkeys(g.gpu or "GPUs of no named type" for g in groups))
    raise UserError(
        f"Partition {partition.name} has no {wanted} GPUs, it has {has}.",
        "Choose another partition, or set resources.gpu to a type it has.",
    )


def _wanted_gpu(profile: Profile, site: Site) -> str | None:
    """Catalogue id of the GPU that the profile, or else the site's node type, asks for."""
    named = profile.resources.gpu or profile.resources.node
    if named:
        return catalogue.node_for(named).gpu.id
    return catalogue.node_for(site.node).gpu.id if site.node else None


def _is_mixed(partition: Partition) -> bool:
    """Whether the GPU's type must be part of the request."""
    return len({g.gpu for g in partition.groups if g.gpus_per_node}) > 1


def check_local_size(cluster: Cluster, wanted: int | None) -> None:
    """UserError for more processes than this machine should start. A real cluster's limits are its partitions'."""
    if cluster.scheduler != "local" or wanted is None:
        return
    groups = [group for partition in cluster.partitions for group in partition.groups]
    gpus, cpus = sum(g.gpus_per_node for g in groups), max((g.cpus_per_node for g in groups), default=1)
    most = gpus or most_processes(cpus)
    if wanted > most:
        asked, has = (
            (f"{wanted} GPUs", f"{gpus} GPU{'s' if gpus > 1 else ''}")
            if gpus
            else (f"{wanted} processes", f"no GPUs and {cpus} CPU{'s' if cpus > 1 else ''}")
        )
        raise UserError(
            f"{asked} are too many: this machine has {has}.", f"Set resources.gpus to at most {most}."
        )


def _size(
    profile: Profile, partition: Partition, group: NodeGroup | None, plan: Plan | None
) -> tuple[int, int, int]:
    """GPUs, GPUs of each node (or tasks, where there are no GPUs), nodes."""
    wanted = profile.resources
    if group is None:
        if plan is not None:
            raise UserError(
                f"{profile.recipe} needs GPUs, and partition {partition.name} has none.",
                "Choose another partition or cluster, or try recipe=smoke.",
            )
        tasks = 1 if wanted.gpus is None else wanted.gpus
        per_node = tasks if wanted.gpus_per_node is None else wanted.gpus_per_node
        if per_node < 1:
            raise UserError(
                f"{per_node} tasks a node are too few.", "Set resources.gpus_per_node to 1 or more."
            )
        return 0, min(tasks, per_node), nodes_of(tasks, per_node)
    per_node = group.gpus_per_node if wanted.gpus_per_node is None else wanted.gpus_per_node
    if not 1 <= per_node <= group.gpus_per_node:
        raise UserError(
            f"{per_node} GPUs a node are not possible: nodes of partition {partition.name} have "
            f"{group.gpus_per_node}.",
            f"Set resources.gpus_per_node to at most {group.gpus_per_node}, or leave it empty.",
        )
    gpus = wanted.gpus if wanted.gpus is not None else (plan.layout.gpus if plan else per_node)
    nodes = nodes_of(gpus, per_node)
    if plan is not None and plan.layout.gpus != gpus:
        raise UserError(
            f"The plan is for {plan.layout.gpus} GPUs and the job for {gpus}.",
            "Plan again for the new number.",
        )
    most = min(n for n in (group.nodes, partition.max_nodes) if n is not None)
    if nodes > most:
        limit = "allows" if most < group.nodes else "has"
        kind = f" with {group.gpu}" if group.gpu else ""
        raise UserError(
            f"{gpus} GPUs are {nodes} nodes, and partition {partition.name} {limit} {most}{kind}.",
            f"Ask for at most {most * per_node} GPUs, or choose another partition.",
        )
    return gpus, min(gpus, per_node), nodes


def check_time_limit(text: str, partition: Partition) -> None:
    """UserError for a time limit that Slurm does not understand or the partition does not allow."""
    if not text:
        return
    if not slurm_words.is_duration(text):
        raise UserError(
            f"The time limit {text!r} is not in Slurm's notation.", "Write 30:00, 2:00:00 or 1-00:00:00."
        )
    limit = partition.time_limit_seconds
    wanted = slurm_words.seconds(text)
    if limit is not None and (wanted is None or wanted > limit):
        raise UserError(
            f"The time limit {text} is longer than partition {partition.name} allows "
            f"({slurm_words.duration(limit)}).",
            f"Set site.time_limit to {slurm_words.duration(limit)} or less, or choose another partition.",
        )
    if wanted == 0:
        raise UserError("The time limit is zero.", "Write 30:00, 2:00:00 or 1-00:00:00.")
