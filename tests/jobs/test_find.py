"""Any ID takes a run id or a job id, or the beginning of a run id that only one run has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune import jobs
from gpt_tune.errors import EXIT_USAGE, UserError
from gpt_tune.ledger import JobRecord, Ledger, RunRecord

PLAIN = RunRecord("", "", "testbed", "slurm", "n", "smoke", "/r", "/r/j", "2026-11-30T07:15:33Z")
RUNS = [
    ("r20261130-071533-k3f9", "testbed", ["4711"]),
    ("r20261130-071533-m2q7", "testbed", ["4712", "4713"]),
    ("r20261201-090000-abcd", "other", ["4711", "47"]),
    ("r20261201-090001-efgh", "local", ["local-7"]),
    ("r20261201-090002-lost", "testbed", []),
]


@pytest.fixture
def ledger(home: Path) -> Ledger:
    ledger = Ledger.open()
    for run_id, cluster, job_ids in RUNS:
        ledger.add(replace(PLAIN, run_id=run_id, token=run_id, cluster=cluster))
        for ordinal, job_id in enumerate(job_ids):
            ledger.put_job(JobRecord(run_id, job_id, ordinal))
    return ledger


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("r20261130-071533-k3f9", "k3f9"), ("r20261130-071533-m", "m2q7"), ("4712", "m2q7"), ("4713", "m2q7"),
        ("47", "abcd"), ("local-7", "efgh"), ("r20261201-090002", "lost"),
    ],
)  # fmt: skip
def test_found(ledger: Ledger, text: str, ending: str) -> None:
    assert jobs.find(text, ledger).run_id.endswith(ending)
    assert jobs.find(text).run_id.endswith(ending)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("4711", ["2 runs", "k3f9", "abcd", "testbed", "other"]),
        ("r20261130-071533", ["2 runs", "k3f9", "m2q7"]),
        ("r", ["5 runs"]),
        ("", ["no run"]),
        ("471", ["no run or job '471'"]),
        ("r20261130-071533-k3f8", ["Did you mean r20261130-071533-k3f9?"]),
        ("local-8", ["Did you mean local-7?"]),
        ("zzz", ["gpt-tune jobs"]),
        ("99887", ["jobs --adopt 99887"]),
        ("99887_3", ["jobs --adopt 99887_3"]),
        ("%", ["no run"]),
        ("r2026' OR '1'='1", ["no run"]),
    ],
)
def test_ambiguous_or_unknown(ledger: Ledger, text: str, words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        jobs.find(text, ledger)
    assert caught.value.exit_code == EXIT_USAGE
    for word in words:
        assert word in str(caught.value)


def test_many_matches_are_not_all_listed(home: Path) -> None:
    with Ledger.open() as ledger:
        for i in range(30):
            ledger.add(replace(PLAIN, run_id=f"r2026-{i:02d}", token=str(i)))
        with pytest.raises(UserError, match=r"30 runs: .* and 22 more"):
            jobs.find("r2026", ledger)


def test_an_ended_run_is_not_cancelled_again(ledger: Ledger) -> None:
    ledger.update("r20261130-071533-k3f9", phase="ended", state="FAILED")
    assert jobs.cancel("r20261130-071533-k3f9", ledger).state == "FAILED"
