"""What the plan screen can do, by command line: another order, one layout in full, two side by side, dropout."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run

ASK = ("plan", "--model", "gpt-145b", "--gpus", 64, "--gpu", "p6-b200")


def test_another_order_keeps_each_ones_rank(gpt_tune: Run) -> None:
    done = gpt_tune(*ASK, "--sort", "memory", "--json")
    memory = [plan["memory"]["device_gib"] for plan in done.json["plans"]]
    assert memory == sorted(memory)
    assert sorted(plan["rank"] for plan in done.json["plans"]) == list(range(1, 11))
    assert done.json["compare"] is None
    words = gpt_tune(*ASK, "--sort", "memory").out
    assert "why number 1:" in words


def test_one_layout_in_full(gpt_tune: Run) -> None:
    done = gpt_tune(*ASK, "--explain", 3)
    assert "stage  weights" in done.out
    assert "number 1" in done.out  # its reason against the first
    assert "why number 1:" not in done.out
    assert "GPU-hours" in done.out


def test_an_estimate_says_what_it_costs(gpt_tune: Run) -> None:
    given = ("estimate", *ASK[1:], "--fix", "tensor_parallel=8", "--fix", "pipeline_parallel=8")
    cost = gpt_tune(*given, "--json").json["cost"]
    assert cost["steps"] == 1000
    assert cost["low_hours"] < cost["gpu_hours"] < cost["high_hours"]
    assert "GPU-hours" in gpt_tune(*given).out
    assert gpt_tune(*given, "--fix", "pipeline_parallel=81", "--json").json["cost"] is None


def test_two_side_by_side(gpt_tune: Run) -> None:
    assert "difference" in gpt_tune(*ASK, "--compare", "1,2").out
    data = gpt_tune(*ASK, "--compare", "1,2", "--json").json["compare"]
    assert data["differ"]
    assert {"differ", "same", "figures"} <= set(data)


def test_dropout_is_part_of_the_question(gpt_tune: Run) -> None:
    with_it = gpt_tune(*ASK, "--dropout", "0.1", "--json").json["plans"][0]["step"]["seconds"]
    without = gpt_tune(*ASK, "--dropout", "0", "--json").json["plans"][0]["step"]["seconds"]
    assert without < with_it == gpt_tune(*ASK, "--json").json["plans"][0]["step"]["seconds"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sort", "memroy"), "memory"),
        (("--explain", "11"), "no number 11"),
        (("--explain", "0"), "below 1"),
        (("--compare", "1"), "1,2"),
        (("--compare", "1,11"), "1 to 10"),
        (("--dropout", "1"), "below 1"),
        (("--dropout", "nan"), "below 1"),
        (("--dropout", "-0.1"), "below 1"),
    ],
)
def test_what_cannot_be_is_one_sentence(gpt_tune: Run, words: tuple[str, ...], said: str) -> None:
    done = gpt_tune(*ASK, *words)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""
