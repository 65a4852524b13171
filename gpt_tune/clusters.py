"""Owns finding the clusters that can be used from here, and connecting to one."""

from __future__ import annotations

import shutil

from gpt_tune.errors import SchedulerError, UserError, unknown_name
from gpt_tune.schedulers.base import Cluster, Scheduler
from gpt_tune.schedulers.local import Local
from gpt_tune.schedulers.slurm_cli import SlurmCli, configured_name

LOCAL = "local"


def available() -> list[str]:
    """Names of the clusters that answer now: Slurm's first, this machine (`local`) always."""
    return [*_reachable_slurm(), LOCAL]


def connect(name: str | None = None) -> Scheduler:
    """The scheduler of a cluster; without a name Slurm's where it is installed, else this machine.

    Makes no controller call when the cluster's name stands in slurm.conf, so that a cluster whose controller
    is down can still be connected to.
    """
    if name == LOCAL:
        return Local()
    slurm = slurm_name()
    if name in (None, ""):
        return SlurmCli() if slurm else Local()
    if slurm and name == slurm:
        return SlurmCli()
    known = [slurm, LOCAL] if slurm else [LOCAL]
    if not slurm and shutil.which("sinfo") is None:
        raise UserError(
            f"There is no cluster {name!r} here: Slurm is not installed on this machine.",
            "Run gpt-tune on the cluster's login node, or use `local`.",
        )
    raise unknown_name("cluster", str(name), known)


def discover(name: str | None = None) -> Cluster:
    """What a cluster offers now."""
    return connect(name).discover()


def slurm_name() -> str | None:
    """The name of the Slurm cluster this machine belongs to, None where there is none."""
    if shutil.which("sinfo") is None:
        return None
    name = configured_name()
    if name:
        return name
    try:
        return SlurmCli().cluster
    except SchedulerError:
        return None


def _reachable_slurm() -> list[str]:
    name = slurm_name()
    if name is None:
        return []
    try:
        SlurmCli().check_reachable()
    except SchedulerError:
        return []
    return [name]
