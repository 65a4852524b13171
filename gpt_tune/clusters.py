"""Owns finding the clusters that can be used from here, and connecting to one."""

from __future__ import annotations

import shutil

from gpt_tune.errors import SchedulerError, UserError, unknown_name
from gpt_tune.schedulers.base import Cluster, Scheduler, Unreachable
from gpt_tune.schedulers.local import Local
from gpt_tune.schedulers.slurm_cli import SlurmCli, configured_name

LOCAL = "local"


def available() -> list[str]:
    """Names of the clusters that answer now: Slurm's first, this machine (`local`) always."""
    name, problem = _slurm()
    return [name, LOCAL] if name and problem is None else [LOCAL]


def silent() -> dict[str, SchedulerError]:
    """Clusters that this machine belongs to and that do not answer now, with what to tell the user."""
    name, problem = _slurm()
    return {name or "slurm": problem} if isinstance(problem, Unreachable) else {}


def connect(name: str | None = None) -> Scheduler:
    """The scheduler of a cluster; without a name Slurm's where it is set up, else this machine.

    Makes no controller call when the cluster's name stands in slurm.conf, so that a cluster whose controller
    is down can still be connected to.
    """
    if name == LOCAL:
        return Local()
    if shutil.which("sinfo") is None:
        if not name:
            return Local()
        raise UserError(
            f"There is no cluster {name!r} here: Slurm is not installed on this machine.",
            "Run gpt-tune on the cluster's login node, or use `local`.",
        )
    scheduler = SlurmCli()
    try:
        slurm = scheduler.cluster
    except Unreachable:
        raise
    except SchedulerError:  # Slurm's commands are here, but this machine belongs to no cluster
        slurm = ""
    if not name:
        return scheduler if slurm else Local()
    if name == slurm:
        return scheduler
    raise unknown_name("cluster", name, [slurm, LOCAL] if slurm else [LOCAL])


def discover(name: str | None = None) -> Cluster:
    """What a cluster offers now."""
    return connect(name).discover()


def _slurm() -> tuple[str | None, SchedulerError | None]:
    """The Slurm cluster's name, where it is known, and why it cannot be used now."""
    if shutil.which("sinfo") is None:
        return None, None
    scheduler = SlurmCli()
    try:
        scheduler.check_reachable()
        return scheduler.cluster, None
    except SchedulerError as error:
        return configured_name(), error
