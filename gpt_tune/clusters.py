"""Owns finding the clusters that can be used from here, and connecting to one."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from gpt_tune.errors import SchedulerError, UserError, unknown_name
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Site
from gpt_tune.resources import existing_file
from gpt_tune.schedulers import slurm_conf
from gpt_tune.schedulers.base import Cluster, Scheduler, Unreachable
from gpt_tune.schedulers.local import Local
from gpt_tune.schedulers.slurm_cli import SlurmCli

LOCAL = "local"
# A login node that does not answer takes a while to say so: it is not asked again at once.
_AWAY_SECONDS = 20.0
_away: dict[str, tuple[float, SchedulerError]] = {}
# Only to see who is there: a controller that is slow now is called so, and named again when it is asked for.
_PROBE_SECONDS = 6.0
_HUNG_SECONDS = 5.0
_hung: list[tuple[float, Unreachable]] = []


def available() -> list[str]:
    """Names of the clusters that answer now: Slurm's first, those behind ssh, this machine (`local`) always."""
    answers = _ask_all()
    return [*(name for name, problem in answers if problem is None), LOCAL]


def silent() -> dict[str, SchedulerError]:
    """Clusters that this machine belongs to or logs in to and that do not answer now, with what to tell the user."""
    return {name: problem for name, problem in _ask_all() if problem is not None}


def connect(name: str | None = None) -> Scheduler:
    """The scheduler of a cluster; without a name Slurm's where it is set up, else the only one behind ssh,
    else this machine.

    Makes no controller call when the cluster's name stands in slurm.conf, so that a cluster whose controller
    is down can still be connected to.
    """
    if name == LOCAL:
        return Local()
    behind_ssh = _behind_ssh()
    if name in behind_ssh:
        return _over_ssh(name, behind_ssh[name])
    if shutil.which("sinfo") is None:
        if not name:
            return _only(behind_ssh) or Local()
        if behind_ssh:
            raise unknown_name("cluster", name, [*behind_ssh, LOCAL])
        raise UserError(
            f"There is no cluster {name!r} here: Slurm is not installed on this machine.",
            "Run gpt-tune on the cluster's login node, or log in to it from here: "
            f"gpt-tune site {name} --set ssh=user@login-node",
        )
    scheduler = _slurm_here()
    try:
        slurm = scheduler.cluster
    except Unreachable:
        raise
    except SchedulerError:  # Slurm's commands are here, but this machine belongs to no cluster
        slurm = ""
    if not name:
        return scheduler if slurm else _only(behind_ssh) or Local()
    if name == slurm:
        return scheduler
    # Other clusters of this machine's accounting database.
    from gpt_tune.schedulers import slurm_siblings

    sibling = slurm_siblings.connect(scheduler, name) if slurm else None
    if sibling is not None:
        return sibling
    siblings = slurm_siblings.names(scheduler) if slurm else ()
    raise unknown_name("cluster", name, [*([slurm] if slurm else []), *siblings, *behind_ssh, LOCAL])


def discover(name: str | None = None) -> Cluster:
    """What a cluster offers now."""
    return connect(name).discover()


def _ask_all() -> list[tuple[str, SchedulerError | None]]:
    """Each cluster that may be used from here, and why it cannot be now. All are asked at once."""
    behind_ssh = _behind_ssh()
    asks: list[Callable[[], tuple[str, SchedulerError | None] | None]] = [_ask_slurm]
    asks += [partial(_ask_ssh, name, site) for name, site in behind_ssh.items()]
    if len(asks) == 1:
        answers = [_ask_slurm()]
    else:
        with ThreadPoolExecutor(len(asks)) as pool:
            answers = list(pool.map(lambda ask: ask(), asks))
    return [a for a in answers if a is not None]


def _ask_slurm() -> tuple[str, SchedulerError | None] | None:
    """This machine's own cluster; None when it belongs to none."""
    if shutil.which("sinfo") is None:
        return None
    for until, known in _hung:
        if time.monotonic() < until:  # asked a moment ago, for as long as anybody waits
            return slurm_conf.cluster_name() or "slurm", known
    _hung.clear()
    scheduler = SlurmCli()  # a ping needs no better way
    begin = time.monotonic()
    try:
        scheduler.check_reachable(_PROBE_SECONDS)
        return scheduler.cluster, None
    except Unreachable as error:
        if time.monotonic() - begin >= _PROBE_SECONDS:
            _hung.append((time.monotonic() + _HUNG_SECONDS, error))
        return slurm_conf.cluster_name() or "slurm", error
    except SchedulerError as error:
        # Without a slurm.conf of the user's own choice it is a machine of no cluster, which is nothing to tell.
        named = os.environ.get("SLURM_CONF", "")
        return (
            None if named.startswith("/dev/") or not named else (slurm_conf.cluster_name() or "slurm", error)
        )


def _ask_ssh(name: str, site: Site) -> tuple[str, SchedulerError | None]:
    until, known = _away.get(name, (0.0, None))
    if known is not None and time.monotonic() < until:
        return name, known
    _away.pop(name, None)
    try:
        _over_ssh(name, site).check_reachable()
    except SchedulerError as error:
        _away[name] = (time.monotonic() + _AWAY_SECONDS, error)
        return name, error
    return name, None


def _slurm_here() -> SlurmCli:
    """This machine's own cluster: through pyslurm where it is installed, else through Slurm's commands.

    $GPT_TUNE_SLURM or the site's `way` force one: cli or api.
    """
    name = slurm_conf.cluster_name()
    site = sites.load(name) if name and existing_file(sites.path_of(name)) else None
    way = os.environ.get("GPT_TUNE_SLURM", "") or (site.way if site else "")
    if way not in ("", "cli", "api"):
        raise UserError(f"GPT_TUNE_SLURM is {way!r}.", "Set it to cli or api, or unset it.")
    if way == "cli":
        return SlurmCli()
    from gpt_tune.schedulers import slurm_api

    if way == "api":
        return slurm_api.forced()
    return slurm_api.SlurmApi() if slurm_api.is_installed() else SlurmCli()


def _behind_ssh() -> dict[str, Site]:
    """Clusters whose site names a login node."""
    found = {}
    for name in sites.names():
        try:
            site = sites.load(name)
        except UserError:  # a damaged file shows where that site is used
            continue
        if site is not None and site.ssh:
            found[name] = site
    return found


def _over_ssh(name: str, site: Site) -> Scheduler:
    from gpt_tune.schedulers.ssh import Target
    from gpt_tune.schedulers.ssh_slurm import SshSlurm

    return SshSlurm(name, Target(site.ssh))


def _only(behind_ssh: dict[str, Site]) -> Scheduler | None:
    if len(behind_ssh) != 1:
        return None
    return next(_over_ssh(name, site) for name, site in behind_ssh.items())
