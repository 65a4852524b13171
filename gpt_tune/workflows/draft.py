"""Owns the draft of a run: everything chosen so far. Frozen: each change makes a new one, so going back is free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpt_tune.planner.types import Plan
from gpt_tune.profiles.schema import Profile, Site
from gpt_tune.schedulers.base import Cluster
from gpt_tune.workflows.edits import Edit

# The answer to "which cluster" that submits nothing.
PLAN_ONLY = "plan-only"
# The words for a value the user typed.
YOU = "you"


@dataclass(frozen=True, slots=True)
class Draft:
    """All choices of one run.

    clusters: names that can be reached. cluster: what was found there, None until load_cluster or when only
    planning. site: kept or guessed for that cluster; site_known says which. plan: the layout chosen.
    origins: dotted key -> where a value comes from. base: the profile or run it started from.
    trouble: a sentence on a cluster that is configured here and does not answer, or "".
    left: a sentence on what was chosen for another cluster and has been left out, or "".
    edits: the user's own changes to generated files, by path.
    """

    profile: Profile
    clusters: tuple[str, ...] = ()
    cluster: Cluster | None = None
    plan_only: bool = False
    site: Site = field(default_factory=Site)
    site_known: bool = False
    plan: Plan | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    base: str = ""
    trouble: str = ""
    left: str = ""
    edits: Mapping[str, Edit] = field(default_factory=dict)

    @property
    def recipe(self) -> str:
        return self.profile.recipe


@dataclass(frozen=True, slots=True)
class Option:
    """One choice of a field: what is kept, what is shown, and a few words on it."""

    value: str
    label: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """One question, ready to show. value is the text shown; source says where it comes from."""

    key: str
    label: str
    help: str
    unit: str
    kind: str  # text | int | float | choice | bool | path
    options: tuple[Option, ...]
    value: str
    default: str
    source: str
    required: bool
    advanced: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One page of questions. skip: nothing to ask there for this draft."""

    id: str
    title: str
    skip: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the draft cannot be submitted yet, and the field that cures it."""

    step: str
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What is chosen and what it implies, as (label, words)."""

    parts: tuple[tuple[str, str], ...]
