"""Bars: cells add up, the uncertain part and the limit are drawn, too much is a shape."""

from __future__ import annotations

import pytest

from tui.widgets.bars import Part, against_limit, legend, shares, stacked
from tui.widgets.paint import line_width, text_of

PARTS = [Part("states", 41.0, "s"), Part("activations", 40.0, "a"), Part("outside", 6.0, "o")]


@pytest.mark.parametrize("values", [[1.0], [1, 1, 1], [0.0, 5.0], [99.0, 0.5, 0.5], [0.0, 0.0]])
@pytest.mark.parametrize("cells", [0, 1, 7, 40])
def test_shares_never_exceed_the_cells(values: list[float], cells: int) -> None:
    out = shares(values, cells, sum(values))
    assert sum(out) <= cells
    assert min(out) >= 0


def test_a_small_part_above_two_percent_is_still_seen() -> None:
    assert shares([95.0, 5.0], 10, 100.0)[1] == 1


def test_stacked_uses_letters_where_colour_is_missing() -> None:
    assert set(text_of(stacked(PARTS, 20, letters=True))) == {"s", "a", "o"}


def test_bar_has_the_limit_and_the_doubt_inside_its_width() -> None:
    bar = against_limit(PARTS, high=95.0, limit=179.0, cells=40)
    assert line_width(bar) == 40
    assert "┃" in text_of(bar)
    assert text_of(bar).index("░") < text_of(bar).index("┃")


def test_too_much_reaches_beyond_the_limit() -> None:
    bar = text_of(against_limit([Part("states", 120.0, "s")], 130.0, 80.0, 40))
    assert bar.index("┃") < bar.rindex("█")


def test_no_known_limit_draws_no_mark() -> None:
    assert "┃" not in text_of(against_limit(PARTS, 95.0, None, 40))


def test_legend_leaves_out_what_is_zero() -> None:
    said = text_of(legend([Part("compute", 2.6, "c"), Part("expert", 0.0, "e")], " s"))
    assert "compute\u00a02.6" in said
    assert "expert" not in said
