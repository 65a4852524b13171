"""Owns what is remembered: runs, their jobs, states and findings."""

from gpt_tune.ledger.record import JobRecord, KeptFinding, KeptJudgement, Phase, Poll, RunRecord
from gpt_tune.ledger.store import Ledger, default_path

__all__ = [
    "JobRecord",
    "KeptFinding",
    "KeptJudgement",
    "Ledger",
    "Phase",
    "Poll",
    "RunRecord",
    "default_path",
]
