"""Where the axes of charts end: at the last step once a run has ended, and ranks are whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tui.widgets.chart_data import Figure, View, frame
from tui.widgets.plot import draw


@pytest.mark.parametrize("steps", [2, 12, 26, 191, 1060])
def test_the_axis_of_an_ended_run_ends_at_its_last_step(steps: int) -> None:
    x = np.arange(1.0, steps + 1)
    ended = frame(Figure("loss", "loss", x=x, y=x, ended=True), View(), 80)
    assert ended.x_range == (1.0, float(steps))
    live = frame(Figure("loss", "loss", x=x, y=x), View(), 80)
    assert live.x_range is not None
    assert live.x_range[1] > steps


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 64])
def test_ranks_are_whole_numbers(ranks: int) -> None:
    x = np.arange(float(ranks))
    data = frame(Figure("memory", "memory by rank", "GiB", x, x + 100.0, axis="rank"), View(), 80)
    rows = draw(data, 80, 12)
    said = "".join(part for part, _ in rows[-1]).split()
    assert said[0] == "0"
    assert said[-1] == str(ranks - 1)
    assert all(word.isdigit() for word in said)
