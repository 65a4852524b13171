"""What a sweep tries, and how it judges."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gpt_tune.errors import UserError
from gpt_tune.profiles.schema import Profile, Training
from gpt_tune.workflows.sweeping import grid
from gpt_tune.workflows.sweeping.ranking import Measured, Row, losers, ranked, t95, with_interval

SMOKE = Profile(recipe="smoke")
GPT = Profile(recipe="megatron-deepspeed", training=Training(tokens=1e12, checkpoint_interval=100))


def test_every_combination_once() -> None:
    found = grid.tasks(GPT, ["tensor_parallel=2,4", "recompute=full,none", "training.seed=1"], 30)
    assert [t.values["tensor_parallel"] + t.values["recompute"] for t in found] == [
        "2full",
        "2none",
        "4full",
        "4none",
    ]
    assert [t.number for t in found] == [1, 2, 3, 4]
    first = found[0].profile
    assert first.layout.fixed == {"tensor_parallel": 2, "recompute.granularity": "full"}
    assert (first.training.seed, first.training.iterations, first.training.tokens) == (1, 30, None)
    assert first.training.checkpoint_interval is None
    assert found[0].label == "tensor_parallel=2 recompute=full training.seed=1"


def test_profile_settings_vary_too() -> None:
    found = grid.tasks(SMOKE, ["smoke.hidden=64,128"], 20)
    assert [(t.profile.smoke.hidden, t.profile.smoke.steps) for t in found] == [(64, 20), (128, 20)]


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        (["smoke.hidden"], "not KEY=a,b,c"),
        (["smoke.hidden="], "not KEY=a,b,c"),
        (["=1,2"], "not KEY=a,b,c"),
        (["smoke.hidden=1,,2"], "not KEY=a,b,c"),
        (["smoke.hidden=64,64"], "twice"),
        (["smoke.hidden=64", "smoke.hidden=128"], "varied twice"),
        (["smoke.hiden=64"], "smoke.hidden"),
        (["tensor_paralel=2"], "nknown"),
        (["tensor_parallel=two"], "tensor_parallel"),
        (["training.seed=1,2,3,4,5,6,7,8,9", "smoke.hidden=1,2,3,4,5,6,7,8"], "72 combinations"),
    ],
)
def test_what_cannot_be_tried(vary: list[str], words: str) -> None:
    with pytest.raises(UserError) as caught:
        grid.tasks(SMOKE, vary)
    assert words in str(caught.value)


@pytest.mark.parametrize("steps", [0, 1, 10_001])
def test_an_impossible_number_of_steps(steps: int) -> None:
    with pytest.raises(UserError, match="2 to 10000"):
        grid.tasks(SMOKE, ["smoke.hidden=64"], steps)


def row(
    number: int,
    mean: float | None,
    stdev: float = 1.0,
    steps: int = 15,
    state: str = "RUNNING",
    **more: object,
) -> Row:
    blank = Row(number, {"k": str(number)}, state, f"r{number}", str(number), gpus=8, **more)  # type: ignore[arg-type]
    return with_interval(blank, Measured(steps, mean, stdev, None)) if mean is not None else blank


def test_the_interval_is_students() -> None:
    """15 steps of 100 +- 1 ms: t(14) = 2.145, so 100 +- 2.145 / sqrt(15)."""
    found = row(1, 100.0)
    assert found.low_ms == pytest.approx(100 - 2.145 / math.sqrt(15))
    assert found.high_ms == pytest.approx(100 + 2.145 / math.sqrt(15))
    assert t95(1) == pytest.approx(12.71)
    assert t95(10_000) == pytest.approx(1.96, abs=0.001)
    one = row(1, 100.0, steps=1)
    assert (one.low_ms, one.high_ms) == (None, None)


def test_best_first_ties_said_failures_last() -> None:
    found = ranked([row(1, 120.0), row(2, None, state="FAILED"), row(3, 100.0), row(4, 100.4), row(5, None)])
    assert [(r.number, r.rank, r.tied) for r in found] == [
        (3, 1, True), (4, 2, True), (1, 3, False), (2, None, False), (5, None, False),
    ]  # fmt: skip
    assert ranked([row(1, 100.0), row(2, 200.0)])[0].tied is False
    assert ranked([]) == []


def test_batches_of_different_size_are_compared_by_token() -> None:
    """Twice the tokens in 1.5 times the time is better."""
    small, large = row(1, 100.0, tokens_per_step=1000), row(2, 150.0, tokens_per_step=2000)
    assert [r.number for r in ranked([small, large])] == [2, 1]
    assert large.tokens_per_second_per_gpu == pytest.approx(2000 / 0.150 / 8)
    fewer_gpus = replace(row(3, 100.0, tokens_per_step=1000), gpus=4)
    assert ranked([small, fewer_gpus])[0].number == 3


def test_losers_are_running_and_surely_slower() -> None:
    best, tied, slow = row(1, 100.0), row(2, 100.5), row(3, 120.0)
    done = row(4, 130.0, state="COMPLETED")
    young = row(5, 200.0, steps=3)
    assert [r.number for r in losers([best, tied, slow, done, young])] == [3]
    assert losers([best]) == []
    assert losers([row(1, 100.0, stdev=90.0), row(2, 120.0, stdev=90.0)]) == []
    assert losers([row(1, None), row(2, None)]) == []
