"""Tests of plain tables: alignment, cutting, and foreign text made harmless."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.cli.table import cells, clean, layout_table, words

NASTY = "\x1b[31mred\x1b[0m\x07\x9b2J\u202eabc\u2066\r\n\t\x00end"


def test_nothing_is_obeyed() -> None:
    made = clean(NASTY)
    assert made.isprintable()
    assert "\\x1b[31mred" in made
    assert "\\u202e" in made


@given(st.text(max_size=80))
def test_any_text_becomes_printable(text: str) -> None:
    assert clean(text).isprintable()


def test_plain_text_stays_as_it_is() -> None:
    assert clean("node b200-[1-8] é 中") == "node b200-[1-8] é 中"


@given(
    st.lists(st.lists(st.text(max_size=30), min_size=3, max_size=3), max_size=8),
    st.none() | st.integers(20, 200),
    st.sets(st.integers(0, 2)),
)
def test_lines_never_pass_the_width_and_columns_align(
    rows: list[list[str]], width: int | None, right: set[int]
) -> None:
    lines = layout_table(("a", "b", "c"), rows, right, width)
    assert len(lines) == len(rows) + 1
    for line in lines:
        assert line.isprintable()
        assert not line.endswith(" ")
        if width is not None:
            assert cells(line) <= max(width, 3 * 6 + 4)


def test_a_table() -> None:
    assert layout_table(("name", "GPUs"), [("dev", 64), ("a longer one", None)], {1}, None) == [
        "name          GPUs",
        "dev             64",
        "a longer one     -",
    ]


def test_wide_characters_count_twice() -> None:
    assert cells("中文") == 4
    assert cells("e\u0301") == 1
    (_, line) = layout_table(("name", "x"), [("中文", "y")], set(), None)
    assert line == "中文  y"


def test_cut_text_says_so() -> None:
    (_, line) = layout_table(("name",), [("x" * 50,)], set(), 20)
    assert line == "x" * 19 + "~"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), ("", "-"), (True, "yes"), (0.123456, "0.1235"), (12345.6, "12,346"), (7, "7")],
)
def test_words_of_values(value: object, text: str) -> None:
    assert words(value) == text
