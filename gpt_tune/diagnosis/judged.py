"""Owns what a user's word changes in a diagnosis: findings called nothing, and findings called by another name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpt_tune.diagnosis.rank import Candidate
from gpt_tune.diagnosis.signatures import by_id, fill_in
from gpt_tune.diagnosis.types import Finding, Judgement

Judgements = Mapping[str, Judgement]


def apply(candidates: Sequence[Candidate], judgements: Judgements) -> tuple[list[Candidate], list[Finding]]:
    """The candidates that stand (corrected ones under their new name), and the findings that were dismissed."""
    standing: list[Candidate] = []
    dismissed: list[Finding] = []
    for candidate in candidates:
        judgement = judgements.get(candidate.finding.id)
        if judgement is None:
            standing.append(candidate)
        elif judgement.to is None:
            dismissed.append(as_dismissed(candidate.finding, judgement))
        else:
            standing.append(_corrected(candidate, judgement.to, judgement.why))
    return standing, dismissed


def split(findings: Sequence[Finding], judgements: Judgements) -> tuple[list[Finding], list[Finding]]:
    """Findings that stand, and dismissed ones, for those that were not ranked."""
    standing = [f for f in findings if f.id not in judgements or judgements[f.id].to is not None]
    return standing, [as_dismissed(f, judgements[f.id]) for f in findings if f not in standing]


def as_dismissed(finding: Finding, judgement: Judgement) -> Finding:
    """It is shown still, as what the user called it: nothing that alarms, or that anything is done about."""
    return replace(finding, severity="info", dismissed=judgement.why, echo_of=None, changes={}, action=None)


def _corrected(candidate: Candidate, to: str, why: str) -> Candidate:
    """The same place in the log, with another cause. What the old signature's groups said does not carry over."""
    signature, old = by_id(to), candidate.finding
    said = fill_in(signature.text, {})
    because = f": {why}" if why else ""
    word = f"(You corrected this from {old.id}{because}.)"
    finding = replace(
        old,
        id=signature.id,
        severity=signature.severity,
        # A sentence made of figures from the log says nothing without them.
        text=word if "?" in said else f"{said} {word}",
        fix=fill_in(signature.fix, {}),
        changes=dict(signature.changes),
        action=signature.action,
        corrected_from=old.id,
    )
    role = signature.role if signature.role not in ("context", "echo") else "first"
    return replace(candidate, finding=finding, role=role, tier=signature.tier, hangs=signature.hangs)
