"""When another job makes sense, and what a chain's figures mean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpt_tune.diagnosis.types import Action, Finding
from gpt_tune.jobs import chains
from gpt_tune.ledger import JobRecord, RunRecord
from gpt_tune.workflows.chain import Facts, decide
from gpt_tune.workflows.chain_summary import Progress, figures

TIMED_OUT = Facts(jobs=2, max_jobs=5, state="TIMEOUT", ended_seconds_ago=5.0, before=100, now=200, total=1000)


def finding(action: Action | None = None, severity: str = "error") -> Finding:
    return Finding("F1", severity, "text", "fix", action=action)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "do", "reason"),
    [
        (TIMED_OUT, "submit", ""),
        (replace(TIMED_OUT, before=None), "submit", ""),
        (replace(TIMED_OUT, exit_code=0, told_to_stop=True, state="COMPLETED"), "submit", ""),
        (replace(TIMED_OUT, state="NODE_FAIL"), "submit", ""),
        (replace(TIMED_OUT, state="FAILED", finding=finding("exclude_host")), "submit", ""),
        (replace(TIMED_OUT, state="FAILED", finding=finding("resume")), "submit", ""),
        (replace(TIMED_OUT, finding=finding(None, "warning")), "submit", ""),
        (replace(TIMED_OUT, claimed=True), "wait", ""),
        (replace(TIMED_OUT, claimed=True, ended_seconds_ago=60.0), "submit", ""),
        (replace(TIMED_OUT, now=1000), "end", "done"),
        (replace(TIMED_OUT, exit_code=0, state="COMPLETED"), "end", "done"),
        (replace(TIMED_OUT, now=100), "end", "no-progress"),
        (replace(TIMED_OUT, before=None, now=None), "end", "no-progress"),
        (replace(TIMED_OUT, state="FAILED", finding=finding()), "end", "incurable"),
        (replace(TIMED_OUT, state="FAILED", finding=finding("less_memory")), "end", "incurable"),
        (replace(TIMED_OUT, jobs=5), "end", "max-jobs"),
        (replace(TIMED_OUT, cancelled=True), "end", "stopped"),
        (replace(TIMED_OUT, over="no-progress"), "end", "no-progress"),
    ],
)
def test_whether_another_job_makes_sense(facts: Facts, do: str, reason: str) -> None:
    decision = decide(facts)
    assert (decision.do, decision.reason) == (do, reason)
    assert not reason or reason in chains.REASONS


@pytest.mark.parametrize(
    ("name", "iteration"),
    [
        ("iter_0000100", 100), ("global_step250", 250), ("checkpoint-30", 30), ("step-7.npz", 7), ("iter_0000000", 0),
        ("latest", None), ("latest_checkpointed_iteration.txt", None), ("final", None), (".tmp-checkpoint-30", None),
        ("", None), ("mp_rank_00_model_states.pt", None),
    ],
)  # fmt: skip
def test_names_of_checkpoints(name: str, iteration: int | None) -> None:
    assert chains.iteration_of(name) == iteration


def test_the_tags_of_a_chain() -> None:
    record = RunRecord("r", "t", "c", "slurm", "n", "smoke", "/r", "/r/job", "2026-11-30T07:00:00Z")
    assert chains.chain_of(record) is None
    assert chains.to_json(record) is None
    record = replace(record, tags=("mine", chains.tag(7)), job_ids=("1", "2"))
    assert chains.chain_of(record) == chains.Chain(2, 7)
    ended = replace(record, tags=chains.with_end(chains.with_end(record.tags, "done"), "no-progress"))
    assert ended.tags == ("mine", "chain=7", "chain-over=no-progress")
    assert "no new checkpoint" in str(chains.to_json(ended))


def job(ordinal: int, start: str, end: str | None) -> JobRecord:
    return JobRecord(
        "r", str(ordinal), ordinal, started_at=f"2026-11-30T{start}Z", ended_at=end and f"2026-11-30T{end}Z"
    )


def test_figures_span_all_jobs() -> None:
    """Two jobs of an hour on 8 GPUs; 600 steps of 9 s count, 100 more were lost with the first job."""
    jobs = [job(0, "01:00:00", "02:00:00"), job(1, "03:00:00", None)]
    now = 1_796_011_200.0  # 2026-11-30T04:00:00Z
    found = figures(jobs, 8, Progress(600, 600, 1000, 9.0), 550, now)
    assert found.running_seconds == 7200
    assert found.gpu_hours == 16
    assert found.goodput == pytest.approx(0.75)
    assert found.eta_seconds == pytest.approx(400 * 9 / 0.75)
    assert (found.checkpoint, found.at_risk_iterations) == (550, 50)
    assert found.at_risk_gpu_hours == pytest.approx(1.0)


def test_figures_of_nothing() -> None:
    found = figures([], 0, Progress(0, None, None, None), None, 0.0)
    assert (found.goodput, found.eta_seconds, found.gpu_hours, found.at_risk_iterations) == (None,) * 4
    waiting = JobRecord("r", "1", 0)
    assert figures([waiting], 8, Progress(0, None, None, None), None, 0.0).running_seconds == 0
