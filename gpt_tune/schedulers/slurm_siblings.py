"""Owns other Slurm clusters that this machine's commands reach through the accounting database (their -M option)."""

from __future__ import annotations

import time

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers import refusals
from gpt_tune.schedulers.base import Unreachable
from gpt_tune.schedulers.commands import LocalCommands
from gpt_tune.schedulers.slurm_cli import SlurmCli

_SECONDS = 10.0
_KEPT_SECONDS = 300.0  # clusters come and go with the years
_known: dict[str, tuple[float, dict[str, str]]] = {}


class SiblingSlurm(SlurmCli):
    """A cluster beside this machine's own. Its file systems are taken to be mounted here, as its users need them."""

    def __init__(self, name: str) -> None:
        super().__init__(LocalCommands({"SLURM_CLUSTERS": name}))
        self._name = name


def names(own: SlurmCli) -> tuple[str, ...]:
    """The clusters that the accounting of this machine's cluster knows beside it; none where there is no accounting.

    Asks slurmdbd, never a controller. Unreachable when there is accounting and it does not answer.
    """
    return tuple(_table(own))


def connect(own: SlurmCli, name: str) -> SiblingSlurm | None:
    """One of them; None when there is none of that name. Unreachable when it cannot be reached now."""
    table = _table(own)
    if name not in table:
        return None
    if not table[name]:  # its controller has taken itself off the list, or has never been on it
        raise Unreachable(
            f"The controller of cluster {name} is not running: the accounting database has no address of it.",
            "It may be restarting: try again in a minute, or tell the cluster's support.",
        )
    return SiblingSlurm(name)


def _table(own: SlurmCli) -> dict[str, str]:
    """Name to the address of the controller, "" for none. Kept for a while when all have one."""
    until, found = _known.get(own.cluster, (0.0, {}))
    if time.monotonic() < until:
        return found
    try:
        done = own.commands.run(
            ["sacctmgr", "-nP", "show", "clusters", "format=cluster,controlhost"], _SECONDS
        )
    except Unreachable as error:
        raise refusals.no_database() from error
    except SchedulerError:
        return {}
    if done.returncode != 0:
        if refusals.is_lost(done.words):
            raise refusals.no_database()
        return {}
    rows = [line.split("|") for line in done.text.splitlines()]
    found = {row[0]: row[1] for row in rows if len(row) > 1 and row[0] != own.cluster}
    if all(found.values()):
        _known[own.cluster] = (time.monotonic() + _KEPT_SECONDS, found)
    return found
