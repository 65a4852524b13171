"""What a run without steps waits for, in words; and what would be lost if a run ended now."""

from __future__ import annotations

import pytest

from gpt_tune.logs.types import Event
from gpt_tune.workflows.watching.pace import Prediction
from gpt_tune.workflows.watching.risk import risk_of
from gpt_tune.workflows.watching.waiting import waiting_words


def saved(*iterations: int | None) -> list[Event]:
    return [Event("saved", i, "out") for i in iterations]


@pytest.mark.parametrize(
    ("events", "iteration", "words"),
    [
        ([], 12, "12 steps (0.80 GPU-hours), no checkpoint yet"),
        (saved(400), 412, "12 steps since checkpoint 400 (0.80 GPU-hours)"),
        (saved(400), 401, "1 step since checkpoint 400 (0.067 GPU-hours)"),
        (saved(200, 400), 400, "nothing since checkpoint 400"),
        (saved(None), 12, "12 steps (0.80 GPU-hours), no checkpoint yet"),
        # 500 was saved before the run was taken back to 300 and trained over again
        (saved(300, 500), 312, "12 steps since checkpoint 300 (0.80 GPU-hours)"),
        ([Event("validation", 10, "out")], 12, "12 steps (0.80 GPU-hours), no checkpoint yet"),
    ],
)
def test_what_is_at_risk(events: list[Event], iteration: int, words: str) -> None:
    risk = risk_of(events, iteration, 3750.0, 64)
    assert risk is not None
    assert risk.words == words.replace("0.80", "0.8")


def test_nothing_is_guessed() -> None:
    assert risk_of(saved(10), None, 3750.0, 64) is None
    unknown = risk_of(saved(10), 12, None, None)
    assert unknown is not None
    assert unknown.gpu_hours is None
    assert "GPU-hours" not in unknown.words


@pytest.mark.parametrize("gpus", [0, None])
def test_without_gpus_the_time_is_at_risk(gpus: int | None) -> None:
    risk = risk_of(saved(400), 428, 50.0, gpus)
    assert risk is not None
    assert risk.words == "28 steps since checkpoint 400 (1.40 s)"


def test_each_stage_before_the_first_step_says_what_it_waits_for_and_how_long() -> None:
    queued = waiting_words("PENDING", reason="next in line: it waits for nodes", starts_in=7200.0)
    assert (
        queued
        == "Waiting for the job to start. Next in line: it waits for nodes. Expected to start in about 2 h 00 min."
    )
    assert waiting_words("PENDING", starts_in=-5.0) == "Waiting for the job to start."
    assert "up to 60 s" in waiting_words("RUNNING", log_exists=False, running=5.0)
    first = waiting_words("RUNNING", running=70.0, prediction=Prediction(3700.0))
    assert "1 min 10 s" in first
    assert "1 to 10 min" in first
    assert "3.70 s" in first
    assert "40%" in waiting_words("RUNNING", history=0.4)
    for state in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"):
        assert waiting_words(state) == "No steps in this log."
