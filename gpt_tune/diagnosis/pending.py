"""Owns what squeue's reasons for waiting mean."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from gpt_tune import toml
from gpt_tune.diagnosis.types import Finding
from gpt_tune.resources import data_dir

Starts = Literal["yes", "later", "no", "unknown"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """One reason: whether the job will start by itself (`later`: when something of others ends), and what to do."""

    id: str
    text: str
    fix: str
    starts: Starts


@cache
def _table() -> tuple[tuple[str, Waiting], ...]:
    data = toml.load(data_dir("profiles") / "failures" / "pending.toml")
    return tuple(
        (pattern, Waiting("", entry["text"], entry["fix"], entry["starts"]))
        for entry in data["reason"]
        for pattern in entry["reasons"]
    )


def explain(reason: str) -> Waiting:
    """What a reason means. One that is not known says so and promises nothing."""
    plain = reason.strip().strip("()").strip()
    # `ReqNodeNotAvail, UnavailableNodes:node[3-4]`: the name stands before the comma.
    name, _, rest = plain.partition(",")
    for pattern, waiting in _table():
        if fnmatchcase(plain, pattern) or fnmatchcase(name.strip(), pattern):
            text = f"{waiting.text} ({rest.strip()})" if rest.strip() else waiting.text
            return Waiting(f"P-{name.strip() or 'None'}", text, waiting.fix, waiting.starts)
    return Waiting(f"P-{name.strip()}", f"Slurm gives the reason {plain}.", "", "unknown")


def finding_of(reason: str) -> Finding:
    """The reason as a finding: a warning when the job will not start by itself."""
    waiting = explain(reason)
    return Finding(
        waiting.id, "warning" if waiting.starts == "no" else "info", waiting.text, waiting.fix, excerpt=reason
    )
