"""Owns other Slurm clusters that this machine's commands reach through the accounting database (their -M option)."""

from __future__ import annotations

import time

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers.commands import LocalCommands
from gpt_tune.schedulers.slurm_cli import SlurmCli

_SECONDS = 10.0
_KEPT_SECONDS = 300.0  # clusters come and go with the years
_known: dict[str, tuple[float, tuple[str, ...]]] = {}


class SiblingSlurm(SlurmCli):
    """A cluster beside this machine's own. Its file systems are taken to be mounted here, as its users need them."""

    def __init__(self, name: str) -> None:
        super().__init__(LocalCommands({"SLURM_CLUSTERS": name}))
        self._name = name


def names(own: SlurmCli) -> tuple[str, ...]:
    """The clusters that the accounting of this machine's cluster knows beside it; none where there is no accounting.

    Asks slurmdbd, never a controller.
    """
    until, found = _known.get(own.cluster, (0.0, ()))
    if time.monotonic() < until:
        return found
    try:
        done = own.commands.run(
            ["sacctmgr", "-nP", "show", "clusters", "format=cluster,controlhost"], _SECONDS
        )
    except SchedulerError:
        return ()
    rows = [line.split("|") for line in done.text.splitlines()] if done.returncode == 0 else []
    # One without a host has never had a controller, or has none now.
    found = tuple(row[0] for row in rows if len(row) > 1 and row[1] and row[0] != own.cluster)
    _known[own.cluster] = (time.monotonic() + _KEPT_SECONDS, found)
    return found
