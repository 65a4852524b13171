"""Tables, choices and tabs by keyboard: the cursor stays on its row, everything has a key."""

from __future__ import annotations

import pytest
from textual import events

from tests.tui.conftest import Bare, screen_text, until
from tui.widgets.choice import Choice
from tui.widgets.columns import Column
from tui.widgets.rows import Row, RowList
from tui.widgets.tabs import TabRow

STYLES = [("cosine", "cosine", ""), ("linear", "linear", "falls evenly"), ("constant", "constant", "")]
COLUMNS = (Column("name"), Column("what", grow=True))


def rows(*keys: str) -> list[Row]:
    return [Row(key, (key, f"about {key}")) for key in keys]


async def test_cursor_stays_on_its_key_when_rows_come_and_go() -> None:
    app = Bare(table := RowList(COLUMNS, rows("a", "b", "c")))
    async with app.run_test(size=(40, 10)) as pilot:
        table.focus()
        await pilot.press("down")
        assert table.key == "b"
        table.show_rows(rows("new", "a", "b", "c"))
        assert table.key == "b"
        table.show_rows(rows("new", "a"))
        assert table.key == "a"
        table.show_rows([])
        assert table.key is None


async def test_the_cursor_is_always_in_view() -> None:
    app = Bare(table := RowList(COLUMNS, rows(*[f"row{i:03d}" for i in range(200)])))
    async with app.run_test(size=(40, 10)) as pilot:
        table.focus()
        await pilot.press("end")
        await until(pilot, lambda: "› row199" in screen_text(app))
        await pilot.press("home")
        await until(pilot, lambda: "› row000" in screen_text(app))
        await pilot.press("pagedown", "pagedown")
        await until(pilot, lambda: f"› {table.key}" in screen_text(app))
        await pilot.resize_terminal(40, 5)
        await until(pilot, lambda: f"› {table.key}" in screen_text(app))


async def test_the_chosen_row_is_marked_by_a_sign_and_empty_says_so() -> None:
    app = Bare(table := RowList(COLUMNS, rows("a"), empty="no rows yet"))
    async with app.run_test(size=(40, 10)) as pilot:
        assert "› a" in screen_text(app)
        table.show_rows([])
        await until(pilot, lambda: "no rows yet" in screen_text(app))


async def test_markup_in_cells_is_shown_as_it_stands() -> None:
    app = Bare(RowList(COLUMNS, [Row("x", ("[red]x[/red]", [("[/] \x1b[31m", "muted")]))]))
    async with app.run_test(size=(40, 5)):
        assert "[red]x[/red]" in screen_text(app)
        assert "\x1b" not in screen_text(app)


async def test_choice_turns_by_arrows_and_first_letter() -> None:
    app = Bare(choice := Choice(STYLES, "linear"))
    async with app.run_test(size=(40, 3)) as pilot:
        choice.focus()
        await pilot.press("right")
        assert choice.value == "constant"
        await pilot.press("right")
        assert choice.value == "cosine"
        await pilot.press("left")
        assert choice.value == "constant"
        await pilot.press("c")
        assert choice.value == "cosine"
        assert "1 of 3" in screen_text(app)


async def test_a_choice_can_be_taken_from_a_filtered_list_or_left_alone() -> None:
    app = Bare(choice := Choice(STYLES, "linear"))
    async with app.run_test(size=(60, 20)) as pilot:
        choice.focus()
        await pilot.press("space", "c", "o", "s", "enter")
        await until(pilot, lambda: choice.value == "cosine")
        await pilot.press("space", "escape")
        assert choice.value == "cosine"


async def test_typing_on_a_long_choice_is_a_search_and_the_whole_name_wins() -> None:
    """`h100` on a list where h100-pcie comes first."""
    names = ["p5", "a100", "h100-pcie", "h100", "h200", "b200", "l40s", "t4"]
    app = Bare(choice := Choice([(name, name, "8 x h100" if name == "p5" else "") for name in names], ""))
    async with app.run_test(size=(60, 20)) as pilot:
        choice.focus()
        await pilot.press("h", "1", "0", "0", "enter")
        await until(pilot, lambda: choice.value == "h100")
        await pilot.press("b", "escape")
        assert choice.value == "h100"
        for key in ("b", "2", "0", "0", "enter"):  # all before the window is there
            app.post_message(events.Key(key, key if len(key) == 1 else "\r"))
        await until(pilot, lambda: choice.value == "b200")
        assert len(app.screen_stack) == 1


@pytest.mark.parametrize(("value", "shown"), [("", "choose"), ("unheard-of", "unheard-of")])
async def test_a_choice_never_shows_what_was_not_chosen(value: str, shown: str) -> None:
    app = Bare(choice := Choice(STYLES, value))
    async with app.run_test(size=(40, 3)):
        assert choice.value == value
        assert shown in screen_text(app)


async def test_the_tab_in_use_is_in_view_however_many_there_are() -> None:
    app = Bare(tabs := TabRow([f"file-number-{i}.json" for i in range(12)]))
    async with app.run_test(size=(40, 3)) as pilot:
        tabs.turn(9)
        await until(pilot, lambda: "[file-number-9.json]" in screen_text(app))
        tabs.turn(-9)
        await until(pilot, lambda: "[file-number-0.json]" in screen_text(app))
