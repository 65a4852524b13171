"""Owns rendering for a cluster that cannot be reached from here: a stand-in made of what the profile says."""

from __future__ import annotations

from dataclasses import replace

from gpt_tune import clusters, rendering
from gpt_tune.errors import UserError, shown
from gpt_tune.planner.types import Plan
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Profile
from gpt_tune.resources import path_of
from gpt_tune.schedulers.base import Cluster, NodeGroup, Partition
from gpt_tune.schedulers.local import Local
from gpt_tune.schedulers.local_files import LocalFiles
from gpt_tune.workflows.chosen import profile_of
from gpt_tune.workflows.draft import Draft
from gpt_tune.workflows.launch import Launch, prepare, refuse_secrets, with_edits
from gpt_tune.workflows.machine import Machine, machine_of
from gpt_tune.workflows.request import always_planned

# The name of a cluster nobody named.
STAND_IN = "cluster"


def prepare_anywhere(profile: Profile, run_dir: str) -> Launch:
    """As launch.prepare; where the cluster is not here, for Slurm and the node type that the profile names.

    UserError when the profile does not name one: then nothing says what to render for.
    """
    try:
        return prepare(profile, run_dir=run_dir)
    except UserError as error:
        if not _may_be_elsewhere(profile, error):
            raise
        machine = machine_of(profile)
        if machine.node is None:
            hint = "To render for it from here, set resources.node and resources.gpus."
            raise UserError(error.message, f"{error.hint} {hint}".strip()) from error
    return prepare_elsewhere(profile, run_dir=run_dir)


def prepare_elsewhere(profile: Profile, plan: Plan | None = None, run_dir: str | None = None) -> Launch:
    """As launch.prepare, for Slurm nodes of the type that the profile names. It cannot be submitted from here.

    run_dir: None shows a folder below the profile's run root, or a telling name where it has none.
    """
    machine = machine_of(profile)
    if machine.node is None:
        raise UserError("Nothing says what to render for.", "Set resources.node and resources.gpus.")
    stand_in = _cluster(profile, machine)
    ready = prepare(
        replace(profile, cluster=stand_in.name),
        plan,
        cluster=stand_in,
        site=sites.load(stand_in.name) or sites.guess(stand_in),
        run_dir=run_dir or f"{profile.site.run_root or '/shared/gpt-tune-runs'}/preview",
        scheduler=Local(),
    )
    made = f"made for Slurm and {machine.nodes} x {machine.node.id}"
    note = (
        f"{profile.cluster} cannot be asked from here: {made}."
        if profile.cluster
        else f"Planning only: {made}. Nothing can be submitted from here."
    )
    return replace(ready, warnings=(note, *ready.warnings))


def folder_problem(folder: str) -> str | None:
    """Why files cannot be written into a folder, in one sentence, or None. Cheap: fit for every key press."""
    if not folder.strip():
        return "Name a folder."
    try:
        target = path_of(folder).absolute()
        if target.exists() and not target.is_dir():
            return f"{target} is a file."
        if target.is_dir() and any(target.iterdir()):
            return f"{target} is not empty."
    except UserError as error:
        return str(error)
    except OSError as error:
        return f"{shown(folder)} cannot be read: {error.strerror}."
    return None


def write_out(draft: Draft, folder: str) -> tuple[str, ...]:
    """Write the files of a job into a folder of this machine, made to lie there; their paths. Nothing is submitted.

    UserError for a folder that holds something already.
    """
    if problem := folder_problem(folder):
        raise UserError(problem, "Name a new folder.")
    target, profile = str(path_of(folder).absolute()), profile_of(draft)
    if draft.plan_only:
        ready = prepare_elsewhere(profile, draft.plan, run_dir=target)
    else:
        ready = prepare(profile, draft.plan, draft.cluster, draft.site, run_dir=target, scheduler=Local())
    ready = with_edits(ready, draft.edits)
    refuse_secrets(ready)
    rendering.write(LocalFiles(), target, ready.rendered.files)
    return tuple(f"{target}/{f.path}" for f in ready.rendered.files)


def _may_be_elsewhere(profile: Profile, error: UserError) -> bool:
    """Whether the trouble is that the cluster is not here, and not the profile itself."""
    if profile.cluster == clusters.LOCAL:
        return False
    here = clusters.available()
    if profile.cluster:
        return profile.cluster not in here
    return (
        always_planned(profile.recipe)
        and here == [clusters.LOCAL]
        and not clusters.discover(clusters.LOCAL).partitions[0].gpus_total
    )


def _cluster(profile: Profile, machine: Machine) -> Cluster:
    """A Slurm cluster with just the nodes the job needs."""
    assert machine.node is not None
    group = NodeGroup(
        nodes=machine.nodes,
        nodes_by_state={"idle": machine.nodes},
        gpu=machine.node.gpu.id,
        gpus_per_node=machine.node_gpus,
        gpus_free=machine.nodes * machine.node_gpus,
        cpus_per_node=machine.node.cpus or 0,
        memory_mib_per_node=int((machine.node.memory_gib or 0) * 1024),
    )
    name = profile.resources.partition or profile.site.partition
    partition = Partition(name, True, "up", None, None, (group,))
    return Cluster(profile.cluster or STAND_IN, "slurm", "", (partition,))
