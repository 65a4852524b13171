"""Owns telling a cancel from a failure: what the cancel's own signals leave behind broke nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpt_tune.diagnosis.collect import Hit
from gpt_tune.diagnosis.rank import Candidate
from gpt_tune.jobs.reasons import BY_YOU

CANCEL, TASK_ENDED = "F77", "F79"
FIX = "Nothing needs a fix: `gpt-tune resubmit` (without --with-fix) starts it again."
# What a task that was told to end leaves: SIGINT, the save signal SIGUSR1, SIGTERM (each 128 + its number).
_TOLD = frozenset(
    {"Exited with exit code 130", "Exited with exit code 138", "Exited with exit code 143", "Terminated"}
)
# What spreads from a task that ends. Before the cancel it may be why somebody cancelled (SIGKILL, above all, is what
# a node without memory sends); after it, it is the cancel's own doing.
_SPREADS = frozenset({"signal", "remote", "cancelled"})


def sort_out(candidates: Sequence[Candidate], hits: Mapping[str, Hit], state: str) -> list[Candidate]:
    """The candidates; of a cancelled job those that the cancel brought about are notes."""
    if not _is_cancelled(hits, state):
        return list(candidates)
    cancel = hits.get(CANCEL)
    return [_as_note(c) if _follows(c, hits, cancel) else c for c in candidates]


def worded(candidates: Sequence[Candidate], state: str, reason: str) -> list[Candidate]:
    """The cancel says who did it, where it is known, and that nothing broke, where nothing did."""
    if state != "CANCELLED" or any(c.finding.severity == "error" for c in candidates):
        return list(candidates)
    text = f"{_who(reason)}; nothing in its log had failed before."
    return [
        replace(c, finding=replace(c.finding, text=text, fix=FIX)) if c.finding.id == CANCEL else c
        for c in candidates
    ]


def _is_cancelled(hits: Mapping[str, Hit], state: str) -> bool:
    """By the scheduler's word; without one, by a log in which the whole job (and no mere step) was cancelled."""
    if state != "UNKNOWN":
        return state == "CANCELLED"
    cancel = hits.get(CANCEL)
    return cancel is not None and any(g.get("what") == "JOB" for g in (cancel.groups, *cancel.more))


def _follows(candidate: Candidate, hits: Mapping[str, Hit], cancel: Hit | None) -> bool:
    if candidate.role != "echo" or candidate.tier not in _SPREADS or candidate.finding.id == CANCEL:
        return False
    if cancel is not None and candidate.order > cancel.order:
        return True
    hit = hits.get(candidate.finding.id)
    return (
        candidate.finding.id == TASK_ENDED
        and hit is not None
        and all(groups.get("how") in _TOLD for groups in (hit.groups, *hit.more))
    )


def _as_note(candidate: Candidate) -> Candidate:
    return replace(candidate, finding=replace(candidate.finding, severity="info"))


def _who(reason: str) -> str:
    """`You cancelled the job`, from the scheduler's `CANCELLED by 1000` or our own record."""
    match = re.search(r"CANCELLED by (\d{1,12})", reason)
    if reason == BY_YOU or (match is not None and int(match.group(1)) == os.getuid()):
        return "You cancelled the job"
    return "The job was cancelled" + (f" by user {match.group(1)}" if match is not None else "")
