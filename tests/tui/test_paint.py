"""Painted lines: nothing hostile gets through, widths are exact, wrapping loses nothing."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from tui.widgets.paint import clean, fit, line_width, text_of, wrap


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b[2J",
        "\x1b]52;c;AAAA\x07",
        "\x9b31m",
        "a\x00b",
        "\u202eevil",
        "zero\u200bwidth",
        "bell\x07",
        "\r\n",
    ],
)
def test_no_control_or_direction_character_survives(hostile: str) -> None:
    assert all(c.isprintable() for c in clean(hostile))


def test_clean_keeps_ordinary_text_of_any_script() -> None:
    for text in ("plain", "Übergröße", "模型 训练", "50 % ⣿ │ [b]not markup[/b]"):
        assert clean(text) == text


@pytest.mark.parametrize(
    "text", ["", "short", "exactly ten", "模型训练模型训练", "a much longer text than that", "e\u0301" * 9]
)
@pytest.mark.parametrize("width", [0, 1, 2, 5, 10, 11, 30])
@pytest.mark.parametrize("align", ["left", "right"])
def test_fit_is_exactly_as_wide_as_asked_or_narrower_only_beside_a_wide_character(
    text: str, width: int, align: str
) -> None:
    cells = line_width(fit(text, width, align))
    assert cells <= width
    assert width - cells <= 1 or cell_len(text) < width


def test_wrap_breaks_at_blanks_indents_and_keeps_every_word() -> None:
    words = "the pipeline engine refuses ZeRO-2 with four stages so ZeRO-1 is used instead"
    rows = wrap([("rule: ", "strong"), (words, "")], 24, indent=4)
    assert all(line_width(row) <= 25 for row in rows)
    assert all(text_of(row).startswith("    ") for row in rows[1:])
    assert " ".join(" ".join(text_of(row) for row in rows).split()) == "rule: " + words


def test_wrap_breaks_a_word_longer_than_the_line() -> None:
    rows = wrap([("x" * 100, "")], 30, indent=2)
    assert all(line_width(row) <= 30 for row in rows)
    assert sum(text_of(row).count("x") for row in rows) == 100


@pytest.mark.parametrize("width", range(1, 12))
def test_wrap_ends_at_any_width(width: int) -> None:
    assert wrap([("ab 模型训练 " * 5, "")], width, indent=4)
