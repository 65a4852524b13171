"""`jobs` says of a run that completed before its last step how far it came."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune import jobs
from gpt_tune.ledger import KeptFinding, Ledger
from gpt_tune.schedulers.base import State
from tests.jobs.test_find import PLAIN

TEXT = "It stopped at step 490 of 5,231 (9 %) after a signal (SIGTERM)."


@pytest.mark.parametrize(
    ("state", "identity", "found_at", "said"),
    [
        ("COMPLETED", "F266", "2026-11-30T12:00:05Z", TEXT),
        ("COMPLETED", "F266", "2026-11-30T11:00:00Z", None),  # of an attempt before
        ("COMPLETED", "F221", "2026-11-30T12:00:05Z", None),
        ("TIMEOUT", "F266", "2026-11-30T12:00:05Z", None),
    ],
)
def test_a_run_that_stopped_early(
    home: Path, state: State, identity: str, found_at: str, said: str | None
) -> None:
    ledger = Ledger.open()
    ledger.add(
        replace(PLAIN, run_id="r1", token="t1", phase="ended", state=state, ended_at="2026-11-30T12:00:00Z")
    )
    ledger.put_findings([KeptFinding("r1", identity, "info", TEXT, found_at=found_at)])
    (entry,) = jobs.jobs_json(ledger)["jobs"]
    assert entry["reason_text"] == said
