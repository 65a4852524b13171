"""Owns the list of all rules. A family is a module with a table; a new rule is one more entry of a table."""

from __future__ import annotations

from gpt_tune.lint.finding import Rule
from gpt_tune.lint.rules import (
    arguments,
    containers,
    deepspeed,
    exports,
    files,
    hygiene,
    launch,
    layout,
    names,
    network,
    parsers,
    pins,
    readme,
    releases,
    site,
    size,
    slurm,
    sweeps,
)

RULES: tuple[Rule, ...] = (
    *names.RULES,
    *network.RULES,
    *exports.RULES,
    *layout.RULES,
    *arguments.RULES,
    *size.RULES,
    *slurm.RULES,
    *launch.RULES,
    *files.RULES,
    *site.RULES,
    *pins.RULES,
    *releases.RULES,
    *containers.RULES,
    *deepspeed.RULES,
    *parsers.RULES,
    *sweeps.RULES,
    *readme.RULES,
    *hygiene.RULES,
)
