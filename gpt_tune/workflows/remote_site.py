"""Owns the first look at a cluster behind ssh: its site, filled in from over there."""

from __future__ import annotations

from dataclasses import replace

from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Site
from gpt_tune.schedulers.ssh import Target
from gpt_tune.schedulers.ssh_slurm import SshSlurm, guess_run_root


def guess(name: str, host: str) -> Site:
    """The site of the cluster behind login node `host`, to be called `name` here."""
    sites.path_of(name)  # UserError for what cannot be a name
    scheduler = SshSlurm(name, Target(host))
    site = sites.guess(scheduler.discover())
    variables = scheduler.account.variables
    return replace(
        site,
        ssh=host,
        run_root=guess_run_root(scheduler),
        account=variables.get("SBATCH_ACCOUNT", ""),
        qos=variables.get("SBATCH_QOS", ""),
    )
