"""Owns what the ledger keeps about a run and its jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gpt_tune.schedulers.base import ENDED, State

# intent: written before the scheduler was asked. submitted: it has a job. ended: nothing more will change.
# lost: nobody knows whether a job exists; only the user may decide. refused: never became a job.
Phase = Literal["intent", "submitted", "ended", "lost", "refused"]
OPEN_PHASES: tuple[Phase, ...] = ("intent", "submitted", "lost")


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run. A run is a chain of jobs: job_ids are in order, state and times are the last job's.

    log_paths: absolute, with the scheduler's patterns. profile: TOML text. plan, prediction, shape: JSON data
    or None. Time stamps are RFC 3339 UTC. seen_at: when the state was last heard from the scheduler.
    tags: gpt-tune's own marks (chains, sweeps, adopted). user_tags and note: the user's own words.
    """

    run_id: str
    token: str
    cluster: str
    scheduler: str  # "slurm" | "local"
    name: str
    recipe: str
    run_dir: str
    script: str  # absolute path
    created_at: str
    phase: Phase = "intent"
    state: State = "UNKNOWN"
    reason: str = ""
    job_ids: tuple[str, ...] = ()
    log_paths: tuple[str, ...] = ()
    profile: str = ""
    plan: dict[str, Any] | None = None
    prediction: dict[str, Any] | None = None
    shape: dict[str, Any] | None = None
    gpus: int = 0
    nodes: int = 0
    node_list: str = ""
    partition: str = ""
    submitted_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    expected_start: str | None = None
    seen_at: str | None = None
    exit_code: int | None = None
    last_iteration: int | None = None
    cancel_requested: bool = False
    tags: tuple[str, ...] = ()
    # Who submits, so that another process can tell "under way" from "died on the way".
    submitter_host: str = ""
    submitter_pid: int = 0
    submitter_start: str = ""
    # Until when at least the scheduler did not know the job; None while it has not been missed.
    missing_since: str | None = None
    note: str = ""
    user_tags: tuple[str, ...] = ()

    @property
    def job_id(self) -> str | None:
        """The job that counts now."""
        return self.job_ids[-1] if self.job_ids else None

    @property
    def active(self) -> bool:
        """Whether its state may still change by itself."""
        return self.phase in ("intent", "submitted") and self.state not in ENDED


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job of a run, in the scheduler's words."""

    run_id: str
    job_id: str
    ordinal: int
    state: State = "UNKNOWN"
    reason: str = ""
    submitted_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    exit_code: int | None = None
    node_list: str = ""


@dataclass(frozen=True, slots=True)
class Poll:
    """When a cluster was last asked and last answered (RFC 3339), how often it failed since, and its last words."""

    cluster: str
    asked_at: str | None = None
    answered_at: str | None = None
    failures: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class KeptFinding:
    """A finding about a run, with the keys of the JSON contract."""

    run_id: str
    id: str
    severity: str
    text: str
    fix: str = ""
    line: int | None = None
    rank: int | None = None
    host: str | None = None
    found_at: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptJudgement:
    """What the user says of a run's finding `id`: that it is nothing, or (replaced_by) that it is another one."""

    run_id: str
    id: str
    replaced_by: str | None = None
    why: str = ""
    at: str = ""
