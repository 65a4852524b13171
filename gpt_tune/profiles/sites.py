"""Owns the site of each cluster: account, run folder, environment; asked once, kept in one file a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from gpt_tune import toml
from gpt_tune.errors import UserError, shown
from gpt_tune.profiles.build import from_dict, to_dict
from gpt_tune.profiles.files import write_private
from gpt_tune.profiles.guess import guess
from gpt_tune.profiles.schema import Site
from gpt_tune.resources import config_dir, existing_file

__all__ = ["guess", "load", "merge", "names", "path_of", "problems", "save"]


def names() -> list[str]:
    """Clusters whose site is known."""
    return [p.stem for p in sorted(_folder().glob("*.toml"))]


def load(cluster: str) -> Site | None:
    """The kept site of a cluster, or None."""
    path = path_of(cluster)
    return from_dict(Site, toml.load(path), str(path)) if existing_file(path) else None


def save(site: Site) -> Path:
    """Keep a site. UserError when it names no cluster or lacks the run folder on Slurm."""
    for sentence in problems(site):
        raise UserError(sentence, "")
    return write_private(path_of(site.cluster), toml.dump(to_dict(site)))


def problems(site: Site) -> list[str]:
    """Sentences on what a site must not lack, cheap enough for every key press."""
    found = []
    if not site.cluster:
        found.append("The site names no cluster.")
    if site.scheduler == "slurm" and not site.run_root:
        found.append("The shared run folder (run_root) is missing: every node of the cluster must see it.")
    if site.run_root and not site.run_root.startswith("/"):
        found.append(f"The run folder {shown(site.run_root)} must be an absolute path.")
    if site.time_limit and not TIME_LIMIT.fullmatch(site.time_limit):
        found.append(
            f"The time limit {site.time_limit!r} is not in Slurm's notation: 30, 2:00:00 or 1-12:00:00."
        )
    return found


# minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]], or unlimited.
TIME_LIMIT = re.compile(
    r"\d+|\d+:[0-5]?\d(:[0-5]?\d)?|\d+-\d{1,2}(:[0-5]?\d){0,2}|UNLIMITED|INFINITE", re.IGNORECASE
)


def path_of(cluster: str) -> Path:
    """Where a cluster's site lives, existing or not."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}", cluster):
        raise UserError(f"{cluster!r} is no cluster name.", "Use letters, digits, '.', '_', '@' and '-'.")
    return _folder() / f"{cluster}.toml"


def merge(site: Site, override: Site) -> Site:
    """A site with what a profile sets differently laid over it; tables are merged, lists replaced."""
    merged: Site = _merged(site, override)
    return merged


def _merged(base: Any, over: Any) -> Any:
    changes: dict[str, Any] = {}
    for f in fields(over):
        old, new = getattr(base, f.name), getattr(over, f.name)
        if is_dataclass(new):
            changes[f.name] = _merged(old, new)
        elif isinstance(new, Mapping):
            changes[f.name] = {**old, **new}
        elif new != _default_of(f):
            changes[f.name] = new
    return replace(base, **changes)


def _default_of(f: Any) -> Any:
    return f.default_factory() if callable(f.default_factory) else f.default


def _folder() -> Path:
    return config_dir() / "sites"
