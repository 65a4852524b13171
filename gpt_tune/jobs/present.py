"""Owns the JSON shapes of runs."""

from __future__ import annotations

import pwd
import re
from collections.abc import Sequence
from typing import Any

from gpt_tune.jobs import chains, clock, logs, reasons, reconciling, refreshing
from gpt_tune.ledger import Ledger, RunRecord


def submit_json(record: RunRecord) -> dict[str, Any]:
    """The contract's `submit` object."""
    return {
        "schema": "gpt-tune/submit/1",
        "run_id": record.run_id,
        "cluster": record.cluster,
        "scheduler": record.scheduler,
        "job_id": record.job_id,
        "job_ids": list(record.job_ids),
        "state": record.state,
        "run_dir": record.run_dir,
        "log_paths": logs.resolved_log_paths(record),
        "script": record.script,
    }


def jobs_json(ledger: Ledger, records: Sequence[RunRecord] | None = None) -> dict[str, Any]:
    """The contract's `jobs` object, newest first."""
    records = ledger.runs() if records is None else records
    age = stale_seconds(ledger, records)
    return {
        "schema": "gpt-tune/jobs/1",
        "as_of": as_of(ledger, records),
        "stale_seconds": age,
        "jobs": [_with_end(run_json(r), r, ledger) for r in records],
    }


def _with_end(entry: dict[str, Any], record: RunRecord, ledger: Ledger) -> dict[str, Any]:
    """A run that completed before its last step says so, where a monitor or a diagnosis has seen that."""
    if record.state != "COMPLETED" or entry["reason_text"] or not record.ended_at:
        return entry
    early = [
        f.text for f in ledger.findings(record.run_id) if f.id == "F266" and f.found_at >= record.ended_at
    ]
    return {**entry, "reason_text": early[-1] if early else None}


def run_json(record: RunRecord) -> dict[str, Any]:
    """One entry of `jobs`."""
    return {
        "run_id": record.run_id,
        "job_id": record.job_id,
        "cluster": record.cluster,
        "name": record.name,
        "state": record.state,
        "reason": record.reason or None,
        "reason_text": reason_text(record) or None,
        "nodes": record.nodes,
        "gpus": record.gpus,
        "submitted_at": record.submitted_at,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "exit_code": record.exit_code,
        "log_paths": logs.resolved_log_paths(record),
        "last_iteration": record.last_iteration,
        "recipe": record.recipe,
        "partition": record.partition,
        "node_list": record.node_list,
        "expected_start": record.expected_start,
        "run_dir": record.run_dir,
        "job_ids": list(record.job_ids),
        "chain": chains.to_json(record),
        "model": (record.shape or {}).get("id"),
        "tags": list(record.user_tags),
        "note": record.note or None,
    }


# EDIT HERE to word one more of our own reasons or of Slurm's reasons for an end.
_REASON_WORDS = {
    "Submitting": "it is being submitted",
    reconciling.LOST_REASON: "the scheduler's answer to the submission got lost, and the job may exist: "
    "do not submit it again before that is known",
    reconciling.NEVER_SUBMITTED: "gpt-tune ended before the job reached the scheduler: it can be submitted again",
    refreshing.FORGOTTEN: "the scheduler has forgotten the job, and it left no exit code",
    refreshing.ACCOUNTING_OUT: "the scheduler has forgotten the job, and its accounting, which knows how it ended, "
    "does not answer: it is asked again",
    "NonZeroExitCode": "the job script ended with an error",
    "TimeLimit": "it reached its time limit",
    "NodeDown": "a node went down under it",
    "OutOfMemory": "it used more host memory than it had asked for",
    "JobLaunchFailure": "it could not be started on its nodes",
    "RaisedSignal:9(Killed)": "it was killed (SIGKILL)",
}


def reason_text(record: RunRecord) -> str:
    """The state's reason in plain words, "" when there is nothing to say."""
    if record.reason in _REASON_WORDS:
        words = _REASON_WORDS[record.reason]
        return f"{words} (exit code {record.exit_code})" if record.reason == "NonZeroExitCode" else words
    if record.state == "CANCELLED" and record.cancel_requested:
        return "you cancelled it"
    if match := re.fullmatch(r"CANCELLED by (\d+)", record.reason):
        return f"it was cancelled by {_user(int(match.group(1)))}"
    if record.state == "PENDING":
        known = reasons.explain(record.reason)
        ending = {"no": "it will not start by itself", "maybe": "it may not start by itself", "yes": ""}[
            known.starts
        ]
        return "; ".join(filter(None, [known.text, ending, known.fix.rstrip(".")]))
    return record.reason


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def stale_seconds(ledger: Ledger, records: Sequence[RunRecord]) -> float:
    """Age of the oldest state that may have changed meanwhile, 0 when everything just came from the scheduler."""
    ages = [_age(ledger, cluster) for cluster in _open_clusters(records)]
    return round(max(ages, default=0.0), 1)


def as_of(ledger: Ledger, records: Sequence[RunRecord]) -> str:
    """When the oldest of these states was true."""
    answered = [ledger.poll(c).answered_at for c in _open_clusters(records)]
    return min((a for a in answered if a), default=clock.now())


def _open_clusters(records: Sequence[RunRecord]) -> set[str]:
    return {r.cluster for r in records if r.active}


def _age(ledger: Ledger, cluster: str) -> float:
    poll = ledger.poll(cluster)
    if poll.answered_at is not None and not poll.failures:
        # Whole seconds of the stamps are no staleness.
        return max(0.0, (clock.age_seconds(poll.answered_at) or 0.0) - 1.0)
    seen = clock.age_seconds(poll.answered_at)
    return seen if seen is not None else (clock.age_seconds(poll.asked_at) or 0.0)
