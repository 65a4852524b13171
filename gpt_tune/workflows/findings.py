"""Owns what the user says of a run's findings: dismissing, correcting, taking that back; kept in the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from gpt_tune.diagnosis import Diagnosis, Finding, diagnose
from gpt_tune.diagnosis.signatures import by_id
from gpt_tune.diagnosis.types import Judgement, Severity, diagnose_json
from gpt_tune.errors import UserError, unknown_name
from gpt_tune.jobs import clock
from gpt_tune.ledger import KeptFinding, KeptJudgement, Ledger, RunRecord
from gpt_tune.logs.lines import shown
from gpt_tune.workflows.records import reason_of
from gpt_tune.workflows.remote_logs import logs_here

MAX_WHY = 500  # characters


@dataclass(frozen=True, slots=True)
class Kept:
    """A finding of a run, when it was first seen, and what the user says of it.

    now: the present diagnosis says it too; False for what only a monitor saw at the time.
    """

    finding: Finding
    found_at: str | None = None
    judgement: Judgement | None = None
    now: bool = True

    def to_json(self) -> dict[str, Any]:
        why = self.judgement
        return {**self.finding.to_json(), "found_at": self.found_at, "now": self.now,
                "judgement": None if why is None else {"why": why.why, "to": why.to}}  # fmt: skip


def judgements(run_id: str, ledger: Ledger | None = None) -> dict[str, Judgement]:
    """What the user said of a run's findings, by the finding's id."""
    kept = (ledger or Ledger.open()).judgements(run_id)
    return {j.id: Judgement(j.id, j.why, j.replaced_by) for j in kept}


def diagnosis_of(record: RunRecord) -> Diagnosis:
    """A run's diagnosis from its logs and its state, as the user sees it: with what they said of findings."""
    there = [path for path in logs_here(record) if Path(path).is_file()]
    said = judgements(record.run_id)
    return diagnose(there, record.state, reason_of(record), record.exit_code, said)


def kept(record: RunRecord, ledger: Ledger | None = None) -> list[Kept]:
    """All findings of a run: those its log shows now, root cause first, then those that were seen at the time."""
    ledger = ledger or Ledger.open()
    said = judgements(record.run_id, ledger)
    seen = ledger.findings(record.run_id)
    first = {f.id: f.found_at for f in reversed(seen)}
    present = diagnosis_of(record).findings
    found = [
        Kept(f, first.get(f.corrected_from or f.id), said.get(f.corrected_from or f.id)) for f in present
    ]
    known = {k.finding.id for k in found} | {k.finding.corrected_from for k in found}
    for old in seen:
        if old.id not in known:
            known.add(old.id)
            found.append(Kept(_finding(old, said.get(old.id)), old.found_at, said.get(old.id), now=False))
    return found


def dismiss(record: RunRecord, identity: str, why: str = "", ledger: Ledger | None = None) -> None:
    """Calls a finding nothing: it stays in view and alarms nobody. UserError when the run has no such finding."""
    _judge(record, identity, None, why, ledger)


def correct(record: RunRecord, identity: str, to: str, why: str = "", ledger: Ledger | None = None) -> None:
    """Says that a finding really is another one (an id of `profiles/failures/`)."""
    if to == identity:
        raise UserError(f"{identity} is {to} already.", f"Dismiss it: --dismiss {identity}")
    by_id(to)
    _judge(record, identity, to, why, ledger)


def restore(record: RunRecord, identity: str, ledger: Ledger | None = None) -> None:
    """Takes a word back. UserError when there was none."""
    ledger = ledger or Ledger.open()
    if not ledger.remove_judgement(record.run_id, identity):
        said = ", ".join(judgements(record.run_id, ledger)) or "none"
        raise UserError(
            f"{shown(identity)[:40]} was neither dismissed nor corrected.", f"Those that were: {said}."
        )


def _judge(record: RunRecord, identity: str, to: str | None, why: str, ledger: Ledger | None) -> None:
    ledger = ledger or Ledger.open()
    why = shown(" ".join(why.split()))
    if len(why) > MAX_WHY:
        raise UserError(f"The reason has {len(why)} characters.", f"At most {MAX_WHY} are kept: shorten it.")
    there = {k.finding.corrected_from or k.finding.id for k in kept(record, ledger)}
    if not there:
        raise UserError(f"{record.run_id} has no findings.", "`gpt-tune findings ID` lists what a run has.")
    if identity not in there:
        raise unknown_name("finding", identity, sorted(there), f"run {record.run_id}")
    ledger.put_judgement(KeptJudgement(record.run_id, identity, to, why, clock.now()))


def _finding(old: KeptFinding, judgement: Judgement | None) -> Finding:
    severity: Severity = next((s for s in get_args(Severity) if s == old.severity), "info")
    dismissed = judgement.why if judgement is not None and judgement.to is None else None
    return Finding(old.id, severity, old.text, old.fix, old.line, old.rank, old.host, dismissed=dismissed)


def findings_json(record: RunRecord, found: list[Kept], diagnosis: Diagnosis) -> dict[str, Any]:
    """The object of `findings --json`."""
    root = diagnose_json(diagnosis)["root_cause"]
    return {"schema": "gpt-tune/findings/1", "run_id": record.run_id, "status": diagnosis.status,
            "root_cause": root, "findings": [k.to_json() for k in found]}  # fmt: skip
