"""What is wrong with a run, from its log: signatures are data in `profiles/failures/`."""

from __future__ import annotations

from gpt_tune.diagnosis.engine import Diagnoser, diagnose, diagnose_lines
from gpt_tune.diagnosis.types import Diagnosis, Finding, diagnose_json

__all__ = [
    "Diagnoser",
    "Diagnosis",
    "Finding",
    "Waiting",
    "diagnose",
    "diagnose_json",
    "diagnose_lines",
    "explain",
]
