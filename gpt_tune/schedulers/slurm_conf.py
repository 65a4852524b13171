"""Owns which cluster Slurm's commands mean here, as far as files and variables tell: no controller is asked."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gpt_tune.errors import UserError
from gpt_tune.schedulers.base import Files

_LONGEST_CONF = 4 << 20


def problem(path: str, files: Files) -> str:
    """What is wrong with the file that $SLURM_CONF names, "" for nothing (or for /dev/null, which means none)."""
    if not path or path.startswith("/dev/"):
        return ""
    try:
        if files.size(path) is None:
            return "does not exist"
        text = files.read(path, limit=_LONGEST_CONF)
    except UserError:
        return "cannot be read"
    # An included file may hold the name.
    known = re.search(rb"^[ \t]*(ClusterName[ \t]*=|Include[ \t])", text, re.IGNORECASE | re.MULTILINE)
    return "" if known else "is no slurm.conf: it names no cluster (ClusterName=)"


def cluster_name() -> str | None:
    """The cluster that Slurm's commands mean here: the one $SLURM_CLUSTERS names, else slurm.conf's ClusterName.

    None when there is no such file (configless).
    """
    chosen = os.environ.get("SLURM_CLUSTERS", "")
    if re.fullmatch(r"[A-Za-z0-9_.-]+", chosen) and chosen != "all":
        return chosen
    candidates = [os.environ.get("SLURM_CONF", "")] if os.environ.get("SLURM_CONF") else [
        "/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf",
    ]  # fmt: skip
    for candidate in filter(None, candidates):
        try:
            text = Path(candidate).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        match = re.search(r"^\s*ClusterName\s*=\s*([^\s#]+)", text, re.IGNORECASE | re.MULTILINE)
        if match:
            return match.group(1)
    return None
