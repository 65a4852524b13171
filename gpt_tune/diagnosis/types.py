"""Owns what a diagnosis is made of, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = "gpt-tune/diagnose/1"

Severity = Literal["error", "warning", "info"]
Status = Literal["healthy", "completed", "running", "warning", "failed", "hung", "pending", "unknown"]
# A cure that is more than a setting: the next plan that needs less memory, the same run with more time from its
# last checkpoint, the same run from its last checkpoint, the same without the finding's host.
Action = Literal["less_memory", "more_time", "resume", "exclude_host"]
ALARMING: frozenset[str] = frozenset({"warning", "failed", "hung"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a log says is wrong.

    line: number in the file, from 1, None when the beginning of the file was not read. rank: the global one.
    echo_of: id of the finding this one merely follows from. changes: settings (profile paths) that apply the
    fix, where the fix is a setting; action: what else would (see Action). count: lines that said the same.
    excerpt: the line itself, shortened. dismissed: the user's reason for calling it nothing ("" when none was
    given), None when it stands. corrected_from: the id that the user replaced by this one.
    iteration: the step at which it began, where the steps show it. excess: of a straggler, how much longer it takes
    than the others (0.09 is 9 %).
    """

    id: str
    severity: Severity
    text: str
    fix: str
    line: int | None = None
    rank: int | None = None
    host: str | None = None
    echo_of: str | None = None
    source: str = ""
    excerpt: str = ""
    count: int = 1
    changes: Mapping[str, str] = field(default_factory=dict)
    action: Action | None = None
    dismissed: str | None = None
    corrected_from: str | None = None
    iteration: int | None = None
    excess: float | None = None

    @property
    def shown_id(self) -> str:
        """The id for people: none for a job that the scheduler gave no reason to wait (`P-None`)."""
        return "" if self.id == "P-None" else self.id

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "severity": self.severity,
            "line": self.line,
            "rank": self.rank,
            "host": self.host,
            "text": self.text,
            "fix": self.fix,
            "echo_of": self.echo_of,
            "source": self.source,
            "excerpt": self.excerpt,
            "count": self.count,
            "changes": dict(self.changes),
            "action": self.action,
            "dismissed": self.dismissed,
            "corrected_from": self.corrected_from,
            "iteration": self.iteration,
            "excess": self.excess,
        }


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a user says of a finding: that it is nothing (to None), or that it really is another one."""

    id: str
    why: str = ""
    to: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is the matter with a run: one status, one root cause if there is one, and all findings in order."""

    status: Status
    root_cause: Finding | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def alarming(self) -> bool:
        """Whether a command line should exit 1."""
        return self.status in ALARMING


def diagnose_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The contract object `gpt-tune/diagnose/1`."""
    root = diagnosis.root_cause
    return {
        "schema": SCHEMA,
        "status": diagnosis.status,
        "root_cause": root.to_json() if root is not None else None,
        "findings": [finding.to_json() for finding in diagnosis.findings],
    }
