"""Charts: spikes stay, the prediction shares the axis, nothing breaks on odd numbers."""

from __future__ import annotations

import math

import pytest

from tui.widgets.chart_data import ChartData, Series, off_chart, y_range
from tui.widgets.plot import draw
from tui.widgets.scales import labels, ticks


def flat(values: list[float]) -> Series:
    return Series([float(i + 1) for i in range(len(values))], values, values)


def text(data: ChartData, width: int = 60, height: int = 10) -> str:
    return "\n".join("".join(t for t, _ in line) for line in draw(data, width, height))


def rows_with(data: ChartData, role: str) -> set[int]:
    return {i for i, line in enumerate(draw(data, 60, 12)) if any(r == role and t.strip() for t, r in line)}


def test_a_single_spike_is_drawn_at_the_top() -> None:
    values = [100.0] * 200
    values[120] = 180.0
    assert 0 in rows_with(ChartData("t", series=flat(values)), "part-0") or 1 in rows_with(
        ChartData("t", series=flat(values)), "part-0"
    )


def test_a_column_with_a_low_and_a_high_spans_both() -> None:
    x = [float(i) for i in range(1, 41)]
    spread = ChartData("t", series=Series(x, [10.0] * 40, [20.0] * 40))
    assert len(rows_with(spread, "part-0")) >= 8


def test_prediction_has_its_own_sign_on_the_same_axis() -> None:
    data = ChartData("t", series=flat([3700.0 + i % 7 for i in range(50)]), expected=3600.0)
    low, high = y_range(data)
    assert low < 3600.0 < high
    predicted = rows_with(data, "part-1")
    assert predicted
    assert min(predicted) > min(rows_with(data, "part-0"))


def test_a_prediction_far_away_does_not_flatten_the_measurement_and_is_said_in_words() -> None:
    values = [100.0, 101.0, 103.0]
    below = ChartData("t", series=flat(values), expected=1.0)
    above = ChartData("t", series=flat(values), expected=10_000.0)
    assert y_range(below)[0] > 50
    assert off_chart(below) == "below"
    assert off_chart(above) == "above"


def test_a_slow_first_step_does_not_set_the_scale() -> None:
    data = ChartData("t", series=flat([9000.0, *[100.0 + i % 3 for i in range(30)]]), warm_up=1)
    assert y_range(data)[1] < 200


@pytest.mark.parametrize("value", [0.0, 1e-9, 5.0, 1e15, -3.0])
def test_constant_values_still_make_a_chart(value: float) -> None:
    assert "┤" in text(ChartData("t", series=flat([value] * 5)))


def test_nan_and_infinity_are_left_out() -> None:
    values = [1.0, math.nan, 3.0, math.inf, 2.0, -math.inf]
    assert "┤" in text(ChartData("t", series=flat(values)))
    assert y_range(ChartData("t", series=flat(values)))[1] < 10


def test_all_nan_and_no_points_do_not_fail() -> None:
    assert text(ChartData("t", series=flat([math.nan, math.nan])))
    assert "no steps yet" in text(ChartData("t"))


@pytest.mark.parametrize(("width", "height"), [(1, 1), (15, 3), (16, 4), (39, 9), (200, 60)])
def test_every_size_gives_lines_that_fit(width: int, height: int) -> None:
    rows = draw(ChartData("t", series=flat([1.0, 2.0, 5.0])), width, height)
    assert len(rows) <= height
    assert all(sum(len(t) for t, _ in row) <= width for row in rows)


def test_ticks_are_round_inside_and_few() -> None:
    for low, high in ((0.0, 1.0), (3612.4, 4187.2), (0.00031, 0.00047), (-5.0, 5.0)):
        marks = ticks(low, high, 4)
        assert 2 <= len(marks) <= 6
        assert all(low <= m <= high for m in marks)
    assert ticks(3.0, 3.0, 4) == [3.0]


def test_labels_tell_ticks_apart() -> None:
    for marks in ([3.6, 3.7, 3.8], [1000.0, 2000.0], [0.00031, 0.00035]):
        assert len(set(labels(marks))) == len(marks)


@pytest.mark.parametrize(("width", "height"), [(190, 50), (100, 30)])
def test_a_chart_fills_its_room_whatever_the_terminal_says(
    width: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "10")
    rows = draw(ChartData("t", series=flat([1.0, 2.0, 5.0] * 40)), width, height)
    assert len(rows) == height
    assert max(sum(len(t) for t, _ in row) for row in rows) == width
