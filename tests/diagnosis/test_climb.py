"""A loss that rises without a jump, and losses that only wander."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from gpt_tune.diagnosis import Finding, diagnose_lines
from tests.logs.test_table import line

Loss = Callable[[int], float]


def spikes(loss: Loss, steps: int = 120) -> list[Finding]:
    got = diagnose_lines([line(i, loss=loss(i), total=9000) for i in range(1, steps + 1)])
    return [f for f in got.findings if f.id == "F18"]


@pytest.mark.parametrize("slope", [0.03, 0.15, 0.5])
def test_a_slow_divergence_is_said(slope: float) -> None:
    (finding,) = spikes(lambda i: 2.0 + max(0, i - 40) * slope)
    assert finding.severity == "warning"
    assert finding.text.startswith("The loss climbed bit by bit from 2 to")
    assert finding.iteration == pytest.approx(40, abs=45)


@pytest.mark.parametrize(
    "loss",
    [
        lambda i: 3.0 - i / 100,
        lambda i: 2.0 + 0.6 * (i > 60),  # other data: higher, and stays there
        lambda i: 2.0 + 0.4 * math.sin(i / 9),
        lambda i: 0.12 + 0.1 * abs(math.sin(i / 20)),  # fine-tuning
        lambda i: (-1) ** i * 0.002 * i,  # reinforcement
        lambda i: 2.0 + 0.05 * min(max(0, i - 40), 15),  # warming up again
        lambda i: 11.0 if i < 3 else 2.5,
        lambda i: random.Random(i).uniform(1.6, 2.6),
    ],
)
def test_what_only_wanders_is_not(loss: Loss) -> None:
    assert [f for f in spikes(loss) if "climbed" in f.text] == []
