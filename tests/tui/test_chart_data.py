"""What of a figure is in view: zoom, pan, follow, smoothing, logarithms, other runs; spikes stay at every zoom."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tui.widgets.chart_data import Curve, Figure, Mark, View, bounds, frame, pan, y_range, zoom
from tui.widgets.paint import Line, text_of
from tui.widgets.plot import LETTERS, draw, mark_row
from tui.widgets.scales import log_ticks, settled, settled_window, short


def figure(count: int = 5000, **more: object) -> Figure:
    x = np.arange(1.0, count + 1)
    y = 3700.0 + 10 * np.sin(x)
    return Figure("step_time_ms", "step time", "ms", x, y, **more)  # type: ignore[arg-type]


def text(lines: Sequence[Line]) -> str:
    return "\n".join(text_of(line) for line in lines)


def roles(lines: Sequence[Line]) -> set[str]:
    return {role for line in lines for t, role in line if t.strip()}


@pytest.mark.parametrize("span", [None, 4000.0, 500.0, 37.0])
def test_a_spike_in_view_stays_at_every_zoom(span: float | None) -> None:
    one = figure()
    one.y[4985] = 9000.0
    data = frame(one, View(span=span), 40)
    assert max(data.series.high) == 9000.0
    assert len(data.series) <= 40


def test_zoomed_in_it_still_follows_the_newest() -> None:
    one = figure(1000)
    view = zoom(View(), [one.x], 0.5)
    assert view.stop is None
    assert view.span is not None
    more = figure(1200)
    start, stop, _ = bounds([more.x], view)
    assert stop == 1200.0
    assert stop - start == pytest.approx(view.span)


def test_zooming_out_far_enough_shows_all_again_and_in_has_an_end() -> None:
    one = figure(1000)
    view = View()
    for _ in range(30):
        view = zoom(view, [one.x], 0.5)
    assert view.span == pytest.approx(8.0)
    for _ in range(30):
        view = zoom(view, [one.x], 2)
    assert view == View()


def test_panning_left_stops_following_and_right_to_the_end_follows_again() -> None:
    one = figure(1000)
    view = pan(zoom(View(), [one.x], 0.25), [one.x], -1)
    assert view.stop is not None
    assert bounds([one.x], view)[1] < 1000
    far = view
    for _ in range(100):
        far = pan(far, [one.x], -1)
    assert bounds([one.x], far)[0] == pytest.approx(1.0)
    for _ in range(200):
        far = pan(far, [one.x], 1)
    assert far.stop is None


def test_the_whole_run_cannot_be_panned() -> None:
    one = figure(100)
    assert pan(View(), [one.x], -1) == View()


@pytest.mark.parametrize("count", [0, 1, 2])
def test_no_step_and_few_steps_fail_in_nothing(count: int) -> None:
    one = figure(count)
    for view in (View(), View(log=True, smooth=True), View(span=10.0, stop=3.0)):
        assert draw(frame(one, view, 60), 60, 12)
    assert zoom(View(), [one.x], 0.5).stop is None


def test_nothing_but_nan_draws_no_point() -> None:
    one = Figure("loss", "loss", "", np.array([1.0, 2.0]), np.array([np.nan, np.nan]), waiting="nothing here")
    assert not len(frame(one, View(), 40).series)
    nowhere = Figure(
        "loss", "loss", "", np.array([np.nan, np.nan]), np.array([1.0, 2.0]), waiting="no tokens"
    )
    assert "no tokens" in text(draw(frame(nowhere, View(axis="tokens"), 60), 60, 12))


def test_a_logarithmic_axis_has_round_labels_and_leaves_out_what_it_cannot_show() -> None:
    one = Figure("loss", "loss", "", np.arange(1.0, 101.0), 10.0 ** (3 - np.arange(100) / 25))
    one.y[50] = -1.0
    data = frame(one, View(log=True), 60)
    low, high = y_range(data)
    assert low < 0 < high
    drawn = text(draw(data, 60, 16))
    assert "100" in drawn
    assert "0.1" in drawn
    assert "-1" not in drawn


def test_smoothing_lies_over_the_raw_values_and_is_smoother() -> None:
    one = figure(400)
    one.y[200] = 9000.0
    data = frame(one, View(smooth=True), 60)
    assert max(data.series.high) == 9000.0
    assert max(data.smooth.high) < 5000.0
    assert {"part-0", "part-4"} <= roles(draw(data, 60, 14))


def test_other_runs_have_letters_so_that_no_colour_is_needed() -> None:
    one = figure(300)
    others = tuple(Curve(f"run {i}", one.x, one.y + 40.0 * (i + 1)) for i in range(4))
    data = frame(Figure("s", "s", "", one.x, one.y, others=others), View(), 70)
    drawn = text(draw(data, 76, 20))
    assert all(letter in drawn for letter in LETTERS)


def test_an_other_run_that_is_longer_sets_the_axis() -> None:
    one = figure(100)
    longer = Curve("b", np.arange(1.0, 501.0), np.full(500, 3700.0))
    data = frame(Figure("s", "s", "", one.x, one.y, others=(longer,)), View(), 60)
    assert data.x_range is not None
    assert data.x_range[1] >= 500


def test_marks_stand_where_they_belong_and_the_worst_wins() -> None:
    marks = (Mark(1.0, "checkpoint"), Mark(150.0, "restart"), Mark(150.4, "error"), Mark(299.0, "warning"))
    data = frame(figure(300, marks=marks), View(), 60)
    rows = draw(data, 60, 12)
    row = text([rows[0]])
    assert row.strip()[0] == "C"
    assert row.index("C") < row.index("E") < row.index("!")
    assert "R" not in row
    assert len(mark_row(data, [], 60)) > 0


def test_an_axis_that_grows_stays_put_for_a_while() -> None:
    ends = [settled_window(1.0, float(last), False)[1] for last in range(100, 400)]
    assert len(set(ends)) < 30
    assert all(end >= last for end, last in zip(ends, range(100, 400), strict=True))
    assert settled_window(5.0, 5.0, True) == (5.0, 6.0)


def test_round_ends_hold_the_range() -> None:
    for low, high in ((0.1, 0.9), (3612.4, 4187.2), (-5.0, 5.0), (1e-9, 3e-9)):
        first, last = settled(low, high)
        assert first <= low
        assert last >= high
        assert last - first < 1.3 * (high - low)
    assert settled(2.0, 2.0) == (2.0, 2.0)


def test_ticks_of_logarithms_are_few_and_inside() -> None:
    for low, high in ((-3.0, 3.0), (0.1, 0.4), (2.0, 2.01), (-9.0, 9.0)):
        marks = log_ticks(low, high, 4)
        assert 1 <= len(marks) <= 7
        assert all(low - 1e-9 <= m <= high + 1e-9 for m in marks)


def test_large_numbers_in_few_letters() -> None:
    assert [short(v) for v in (12.0, 12_500.0, 3.2e6, 4.1e11)] == ["12.0", "12.5k", "3.2M", "410B"]
    assert not math.isnan(float(short(0.0)))
