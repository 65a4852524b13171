"""The log pane: follows only at the end, stays where one reads, bounds memory, finds text, shows nothing hostile."""

from __future__ import annotations

import time

import pytest

from tests.tui.conftest import Bare, screen_text, until
from tui.widgets.logpane import LogPane
from tui.widgets.logstore import MAX_CHARACTERS


def numbered(start: int, stop: int) -> list[str]:
    return [f"line {i:05d}" for i in range(start, stop)]


async def test_follows_while_at_the_end() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(60, 12)) as pilot:
        pane.add(numbered(0, 100))
        await until(pilot, lambda: "line 00099" in screen_text(app))
        pane.add(numbered(100, 105))
        await until(pilot, lambda: "line 00104" in screen_text(app))
        assert pane.follow
        assert pane.unseen == 0


async def test_following_stays_at_the_end_when_the_view_shrinks_or_grows() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(60, 12)) as pilot:
        pane.add(numbered(0, 100))
        for rows in (8, 5, 20):
            await pilot.resize_terminal(60, rows)
            await until(pilot, lambda: "line 00099" in screen_text(app), f"the end at {rows} rows")


async def test_scrolled_up_it_stays_and_counts_new_lines_then_f_goes_back() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(60, 12)) as pilot:
        pane.focus()
        pane.add(numbered(0, 100))
        await until(pilot, lambda: "line 00099" in screen_text(app))
        await pilot.press("pageup", "pageup")
        await until(pilot, lambda: not pane.follow)
        before = screen_text(app)
        pane.add(numbered(100, 2000))
        await pilot.pause()
        assert screen_text(app).split()[:2] == before.split()[:2]
        assert pane.unseen == 1900
        await pilot.press("f")
        await until(pilot, lambda: "line 01999" in screen_text(app))
        assert pane.unseen == 0


async def test_what_is_read_does_not_move_when_old_lines_are_dropped() -> None:
    app = Bare(pane := LogPane(max_lines=200))
    async with app.run_test(size=(60, 12)) as pilot:
        pane.focus()
        pane.add(numbered(0, 200))
        await until(pilot, lambda: "line 00199" in screen_text(app))
        await pilot.press("pageup")
        await until(pilot, lambda: not pane.follow)
        top = screen_text(app).split()[:2]
        pane.add(numbered(200, 250))
        await pilot.pause()
        assert screen_text(app).split()[:2] == top
        assert len(pane.lines) == 200
        assert pane.dropped == 50


async def test_search_shows_the_last_match_and_n_goes_round_upwards() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(60, 12)) as pilot:
        pane.focus()
        lines = numbered(0, 500)
        lines[40] = "NCCL WARN first"
        lines[400] = "nccl warn second [b]not markup[/b]"
        pane.add(lines)
        assert pane.search("Nccl Warn") == 2
        await until(pilot, lambda: "second [b]not markup[/b]" in screen_text(app))
        await pilot.press("N")
        await until(pilot, lambda: "NCCL WARN first" in screen_text(app))
        assert pane.search("(unbalanced [regex") == 0


async def test_padding_inside_a_line_is_squeezed_and_indents_stay() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(60, 12)) as pilot:
        pane.add([" iteration      120/    6141 | loss:     2.1", '    File "x.py", line 3'])
        await until(pilot, lambda: " iteration 120/ 6141 | loss: 2.1" in screen_text(app))
        assert '    File "x.py", line 3' in screen_text(app)
        assert pane.lines[0] == " iteration      120/    6141 | loss:     2.1"


async def test_a_long_message_is_shown_whole_and_z_wraps_rows_of_figures_too() -> None:
    figures = " | ".join(f"column {i}: {i}" for i in range(12))
    app = Bare(pane := LogPane())
    async with app.run_test(size=(40, 12)) as pilot:
        pane.focus()
        pane.add(["the trainer's folder " * 4 + "does not exist at all", figures])
        await until(pilot, lambda: "at all" in screen_text(app))
        assert "column 11" not in screen_text(app)
        await pilot.press("z")
        await until(pilot, lambda: "column 11" in screen_text(app))
        await pilot.press("z")
        await until(pilot, lambda: "column 11" not in screen_text(app))


async def test_going_to_a_line_that_is_no_longer_held_says_so() -> None:
    app = Bare(pane := LogPane(max_lines=100))
    async with app.run_test(size=(60, 12)):
        pane.add(numbered(0, 500))
        assert not pane.go_to_line(10)
        assert pane.go_to_line(450)
        assert not pane.go_to_line(99999)


@pytest.mark.parametrize(
    "line", ["\x1b[2J\x1b]0;evil\x07", "a\rb", "x" * 1_000_000, "\x00\x01", "🦊" * 300, ""]
)
async def test_hostile_lines_neither_fail_nor_reach_the_terminal(line: str) -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(60, 12)) as pilot:
        pane.add([line, "after"])
        await until(pilot, lambda: "after" in screen_text(app))
        assert "\x1b" not in screen_text(app)
        assert all(len(kept) <= MAX_CHARACTERS + 1 for kept in pane.lines)


async def test_ten_thousand_lines_a_second_cost_little() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(120, 40)) as pilot:
        started = time.process_time()
        for batch in range(10):
            pane.add(numbered(batch * 1000, batch * 1000 + 1000))
            await pilot.pause()
        assert time.process_time() - started < 1.0
