"""Owns tests of every numeric option of plan and estimate: what is no number gets one sentence and a legal value."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run

ODD = (
    "NaN",
    "inf",
    "-1",
    "0",
    "1.5",
    "0x10",
    "",
    " ",
    "\u0663",
    "\u00b2",
    "x",
    "1,2",
    "9" * 40,
    "1e308",
    "9" * 5000,
)
GIVEN = ("--model", "gpt-1.3b", "--gpus", "8", "--gpu", "h100")


@pytest.mark.parametrize("value", ODD, ids=lambda v: repr(v[:12]))
@pytest.mark.parametrize(
    ("command", "option"),
    [("plan", "--top"), *((c, o) for c in ("plan", "estimate") for o in ("--gpus", "--gpus-per-node", "--seq-length"))],
)  # fmt: skip
def test_whole_numbers(gpt_tune: Run, command: str, option: str, value: str) -> None:
    error = gpt_tune(command, *GIVEN, option, value, "--json").error
    assert error["code"] == 2
    assert len(error["message"]) < 150
    assert error["hint"].startswith(("Give a whole number", "Use "))


@pytest.mark.parametrize("value", [v for v in ODD if v != "1,2"], ids=lambda v: repr(v[:12]))
def test_batch_sizes(gpt_tune: Run, value: str) -> None:
    error = gpt_tune("plan", *GIVEN, "--global-batch-size", value, "--json").error
    assert error["code"] == 2
    assert len(error["message"]) < 150
    assert error["hint"].startswith(("Give a whole number", "Use "))


@pytest.mark.parametrize("value", ["8", " 8 ", "8.0", "8e0"])
def test_what_is_a_whole_number_is_taken_as_one(gpt_tune: Run, value: str) -> None:
    data = gpt_tune("plan", *GIVEN[:2], "--gpus", value, "--gpu", "h100", "--top", value, "--json").json
    assert data["gpus"] == 8
    assert len(data["plans"]) == 8


@pytest.mark.parametrize("value", ["0", "-3", "NaN", "inf", "1e3"])
def test_percent_is_spoken_of_in_percent(gpt_tune: Run, value: str) -> None:
    """What the hint says must be what the option takes."""
    error = gpt_tune("plan", *GIVEN, "--objective", "headroom", "--within", value, "--json").error
    assert f"{float(value):g} %" in error["message"]
    assert "--within 5" in error["hint"]
    assert gpt_tune("plan", *GIVEN, "--objective", "headroom", "--within", "5", "--json").code == 0
