"""Owns choosing the root cause among findings, and the status that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpt_tune.diagnosis.signatures import TIERS, Role, Tier
from gpt_tune.diagnosis.types import Diagnosis, Finding, Status

# What a limit (time, preemption, node failure) brings about when it comes first.
_BROUGHT_ABOUT: frozenset[str] = frozenset(
    {"network", "timeout", "remote", "signal", "cancelled", "exception"}
)
_WAITED: frozenset[str] = frozenset({"timeout", "network"})
_ROLES_OF_CAUSES: frozenset[str] = frozenset({"first", "limit", "steps", "stall", "exception"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A finding with what ranking needs. order: in which it was met; time: of its line, where it has one."""

    finding: Finding
    role: Role
    tier: Tier
    order: int
    time: float | None = None
    hangs: bool = False


_ENDED_BADLY = frozenset({"FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "TIMEOUT", "CANCELLED", "PREEMPTED"})


def conclude(
    candidates: Sequence[Candidate],
    state: str,
    has_steps: bool,
    ended: bool,
    stalled: bool,
    waiting: Finding | None = None,
) -> Diagnosis:
    """The diagnosis of what was found. state: the scheduler's word. ended: the trainer said it was done."""
    if waiting is not None:
        return Diagnosis("pending", waiting if waiting.severity == "warning" else None, (waiting,))
    ended = ended and state not in _ENDED_BADLY  # the last step's line is no proof against the scheduler
    if (ended or state == "COMPLETED") and not any(_is_cause(c) for c in candidates):
        # It did what it was to do: what followed is shutting down, and warnings are worth a line, not a verdict.
        kept = [c.finding for c in candidates if c.role != "echo" or c.finding.severity == "info"]
        return Diagnosis("hung" if stalled else "completed", None, tuple(kept))
    root = root_of(candidates)
    findings = tuple(_ordered(candidates, root))
    cause = next((f for f in findings if root is not None and f.id == root.finding.id), None)
    status = _status(root, state, has_steps, ended, stalled)
    return Diagnosis(status, cause if cause is not None and cause.severity != "info" else None, findings)


def _is_cause(candidate: Candidate) -> bool:
    return candidate.role in _ROLES_OF_CAUSES and candidate.finding.severity == "error"


def root_of(candidates: Sequence[Candidate]) -> Candidate | None:
    """The root cause: the strongest error that is no echo, else the strongest warning, else an echo alone."""
    limits = [c for c in candidates if c.role == "limit"]
    first_limit = min(limits, key=lambda c: c.order, default=None)
    causes = [c for c in candidates if c.role in _ROLES_OF_CAUSES and not _after_limit(c, first_limit)]
    for severity in ("error", "warning"):
        strong = [c for c in causes if c.finding.severity == severity and c.role != "exception"]
        if not strong:
            strong = [c for c in causes if c.finding.severity == severity]
        else:
            strong = _with_earlier_exceptions(strong, causes)
        # An echo that is an error outweighs a warning only when nothing else is there.
        if strong:
            return min(strong, key=_strength)
    echoes = [c for c in candidates if c.role == "echo" and c.finding.severity != "info"]
    return min(echoes, key=_strength, default=None)


def _with_earlier_exceptions(strong: list[Candidate], causes: Sequence[Candidate]) -> list[Candidate]:
    """What only says that others waited gives way to an exception, of whatever kind, that a rank raised before."""
    if any(c.tier not in _WAITED for c in strong):
        return strong
    raised = [
        c
        for c in causes
        if c.role == "exception" and c.finding.severity == "error" and all(_before(c, s) for s in strong)
    ]
    return raised or strong


def _before(exception: Candidate, wait: Candidate) -> bool:
    """By their times; by their places in one file; of two files without times nobody knows."""
    if exception.time is not None and wait.time is not None:
        return exception.time <= wait.time
    return exception.finding.source != wait.finding.source or exception.order < wait.order


def _after_limit(candidate: Candidate, limit: Candidate | None) -> bool:
    return (
        limit is not None
        and candidate is not limit
        and candidate.role != "limit"
        and candidate.tier in _BROUGHT_ABOUT
        and candidate.order > limit.order
    )


def _strength(candidate: Candidate) -> tuple[int, float, int]:
    return TIERS.index(candidate.tier), candidate.time if candidate.time is not None else 0.0, candidate.order


def _ordered(candidates: Sequence[Candidate], root: Candidate | None) -> list[Finding]:
    """The root cause first, then other causes, then echoes, each in the order they were met."""
    causes: list[Finding] = []
    echoes: list[Finding] = []
    for candidate in sorted(candidates, key=lambda c: c.order):
        finding = candidate.finding
        follows = candidate.role in ("echo", "exception") or _follows(candidate, root)
        if candidate is root:
            causes.insert(0, finding)
        elif follows and root is not None:
            echoes.append(replace(finding, echo_of=root.finding.id))
        else:
            causes.append(finding)
    return causes + echoes


def _follows(candidate: Candidate, root: Candidate | None) -> bool:
    """Whether a lesser error most likely came of the root cause: it was met later and is of the kind that spreads."""
    return (
        root is not None
        and root.finding.severity == "error"
        and candidate.tier in _BROUGHT_ABOUT
        and candidate.order > root.order
        and candidate.finding.severity == "error"
    )


def _status(root: Candidate | None, state: str, has_steps: bool, ended: bool, stalled: bool) -> Status:
    if root is not None and root.finding.severity == "error":
        return "hung" if root.hangs else "failed"
    if stalled:
        return "hung"
    if state in ("FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "TIMEOUT"):
        return "failed"
    if root is not None and root.finding.severity == "warning":
        return "warning"
    if state == "COMPLETED" or ended:
        return "completed"
    if state in ("RUNNING", "COMPLETING"):
        return "running"
    if state == "PENDING":
        return "pending"
    if state in ("CANCELLED", "PREEMPTED"):
        return "warning"
    return "healthy" if has_steps else "unknown"
