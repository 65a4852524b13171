"""The log pane: follows only at the end, stays where one reads, bounds memory, finds, filters, folds, shows nothing
hostile."""

from __future__ import annotations

import time

import pytest

from gpt_tune.logs.fold import Folder
from tests.tui.conftest import Bare, screen_text, until
from tui.widgets.logpane import LogPane
from tui.widgets.logstore import MAX_CHARACTERS, Entry, entry_of


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
        assert len(pane.store.held) == 200
        assert pane.store.dropped == 50


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
        assert pane.store.held[0].text == " iteration      120/    6141 | loss:     2.1"


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
        assert all(len(kept.text) <= MAX_CHARACTERS + 1 for kept in pane.store.held)


async def test_ten_thousand_lines_a_second_cost_little() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(120, 40)) as pilot:
        started = time.process_time()
        for batch in range(10):
            pane.add(numbered(batch * 1000, batch * 1000 + 1000))
            await pilot.pause()
        assert time.process_time() - started < 1.0


def folded(lines: list[str]) -> list[Entry]:
    """As the follow thread hands them on."""
    folder, entries = Folder(), []
    for line in lines:
        entry = entry_of(line, "out")
        entry.fold, entry.words = folder.join(entry.facts)
        entries.append(entry)
    return entries


WARNING = "[rank{}]:[W1130 05:54:03.095 init.cpp:774] Warning: nvfuser is no longer supported"


async def test_what_64_ranks_say_stands_once_and_d_shows_each() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(120, 20)) as pilot:
        pane.focus()
        pane.add(folded(["before", *[WARNING.format(r) for r in range(64)], "after"]))
        await until(pilot, lambda: "64 ranks say the same" in screen_text(app))
        assert screen_text(app).count("nvfuser") == 1
        assert "before" in screen_text(app)
        await pilot.press("d")
        await until(pilot, lambda: screen_text(app).count("nvfuser") > 10, "each of them")
        await pilot.press("d")
        await until(pilot, lambda: screen_text(app).count("nvfuser") == 1)


async def test_a_folded_line_is_found_where_it_stands() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(100, 8)) as pilot:
        pane.add(folded([WARNING.format(r) for r in range(64)] + numbered(0, 300)))
        last = pane.containing("[rank63]")
        assert last == 63
        assert pane.go_to_line(last)
        await until(pilot, lambda: "[rank0]" in screen_text(app), "the line that stands for all")


async def test_a_filter_hides_and_comes_off_and_judges_what_comes_later() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(80, 10)) as pilot:
        pane.add([*numbered(0, 3000), "RuntimeError: first", *numbered(3000, 3100)])
        pane.set_filter("level:error")
        await until(pilot, lambda: not pane.judging and "RuntimeError: first" in screen_text(app))
        assert "line 0" not in screen_text(app)
        pane.add(["line more", "ValueError: second"])
        await until(pilot, lambda: "second" in screen_text(app))
        assert "line more" not in screen_text(app)
        pane.set_filter("")
        await until(pilot, lambda: "line more" in screen_text(app))


async def test_a_filter_that_is_taken_off_while_it_is_judged_stays_off() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(80, 10)) as pilot:
        pane.add(numbered(0, 20_000))
        pane.set_filter("/line 0[0-4]+2$/")
        pane.set_filter("")
        await until(pilot, lambda: not [w for w in app.workers if w.group == "filter"], "the thread's end")
        await until(pilot, lambda: "line 19999" in screen_text(app))
        assert len(pane.store.rows) == 20_000


async def test_a_line_hidden_by_the_filter_is_not_jumped_to() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(80, 10)):
        pane.add(numbered(0, 50))
        pane.set_filter('"line 00007"')
        assert not pane.go_to_line(20)
        assert pane.go_to_line(7)


async def test_search_is_on_what_stands_on_screen() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(80, 10)) as pilot:
        pane.add([" iteration       17/    5000 | loss: 2.5", *numbered(0, 100)])
        assert pane.search("iteration 17/ 5000") == 1
        await until(pilot, lambda: "iteration 17/ 5000" in screen_text(app))
        assert pane.search("iteration       17/") == 1
        pane.add([" iteration       18/    5000", " iteration       17/    5000 again"])
        assert pane.finder.words == "1 of 2"
        assert pane.search("") == 0


async def test_older_lines_come_above_and_what_is_read_stays() -> None:
    app = Bare(pane := LogPane(max_lines=150))
    async with app.run_test(size=(60, 10)) as pilot:
        pane.focus()
        pane.add(numbered(100, 200))
        await until(pilot, lambda: "line 00199" in screen_text(app))
        await pilot.press("home")
        await until(pilot, lambda: "line 00100" in screen_text(app))
        assert not pane.add_older([entry_of(line) for line in numbered(0, 100)])
        await pilot.pause()
        assert "line 00100" in screen_text(app)
        assert pane.store.held[0].text == "line 00050"
        assert pane.store.dropped == 0


async def test_up_at_the_top_asks_for_older_lines() -> None:
    class Listening(Bare):
        def on_log_pane_wants_older(self, event: LogPane.WantsOlder) -> None:
            self.heard.append(event)

    app = Listening(pane := LogPane())
    async with app.run_test(size=(60, 10)) as pilot:
        pane.focus()
        pane.add(numbered(0, 100))
        await pilot.press("home")
        assert not app.heard
        await pilot.press("up")
        await until(pilot, lambda: app.heard, "the wish")


async def test_page_up_holds_while_lines_stream() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(60, 12)) as pilot:
        pane.focus()
        for batch in range(20):
            pane.add(numbered(batch * 100, batch * 100 + 100))
            if batch == 10:
                await pilot.press("pageup")
        assert not pane.follow
        assert pane.unseen == 900


async def test_levels_are_coloured_and_who_wrote_a_line_is_muted() -> None:
    app = Bare(pane := LogPane())
    async with app.run_test(size=(80, 10)):
        pane.add(["[rank3]: RuntimeError: x", "[rank3]: all is well"])
        first = {segment.text: segment.style for segment in pane.render_line(0)}
        second = {segment.text: segment.style for segment in pane.render_line(1)}
        assert first["[rank3]: "] == pane.role_style("muted")
        assert first["RuntimeError: x"] == pane.role_style("bad")
        assert second["[rank3]: "] == pane.role_style("muted")
