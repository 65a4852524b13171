"""Table columns: the wanted ones stay, the rest go in order, rows line up."""

from __future__ import annotations

import pytest

from tui.widgets.columns import Column, fit_columns, lay_out
from tui.widgets.paint import line_width

COLUMNS = (
    Column("name", grow=True, least=8),
    Column("state"),
    Column("where", drop=1),
    Column("when", drop=2),
)
ROWS = [("gpt-145b-on-64-gpus", "RUNNING", "dev", "2 h ago"), ("smoke", "COMPLETED", "local", "yesterday")]


def test_wide_enough_shows_all() -> None:
    fitted = fit_columns(COLUMNS, ROWS, 100)
    assert fitted.hidden == 0
    assert line_width(lay_out(COLUMNS, fitted, ROWS[0])) == 100


def test_narrow_drops_the_least_wanted_first() -> None:
    dropped = [fit_columns(COLUMNS, ROWS, width).widths for width in (45, 32, 22)]
    assert [(w[2] > 0, w[3] > 0) for w in dropped] == [(True, True), (True, False), (False, False)]
    assert all(w[0] and w[1] for w in dropped)


@pytest.mark.parametrize("width", range(8, 130, 3))
def test_lines_never_exceed_the_width_where_what_must_stay_fits(width: int) -> None:
    fitted = fit_columns(COLUMNS, ROWS, width)
    if width >= 8 + 2 + 9 + 2:
        assert line_width(lay_out(COLUMNS, fitted, ROWS[1])) <= width
