"""What is done on the monitor by key: filter, copy, save, charts in full, axes, other runs, older lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_tune.errors import UserError
from gpt_tune.workflows.watch import LogLine, WatchUpdate
from tests.tui.conftest import until
from tests.tui.fakes import PREDICTION, FakeEngine, FakeWatch, healthy, run
from tests.tui.flow import Driver
from tui.app import GptTune
from tui.widgets.chart import Chart
from tui.widgets.logpane import LogPane

LINES = [f"{i % 8}: line {i}" for i in range(100)] + ["3: RuntimeError: boom", "3: line last"]


def monitor(watch: FakeWatch, *more: Any) -> GptTune:
    return GptTune(FakeEngine([run(), *more], watch))


async def opened(app: GptTune, driver: Driver) -> None:
    app.open("monitor", app.engine.runs()[0])
    await driver.reach("Monitor")
    await driver.see("line last")
    await until(driver.pilot, lambda: "┤" in driver.text, "an axis")


async def test_a_filter_is_typed_checked_and_ended_by_esc_before_going_back() -> None:
    app = monitor(FakeWatch(healthy(LINES), PREDICTION))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("l")
        await driver.type("level:errr")
        await driver.see("error")
        await driver.press("backspace")
        await driver.type("or")
        await driver.press("enter")
        await driver.see("only errors (1 of 102 lines, Esc ends)")
        assert "line last" not in driver.text
        await driver.press("escape")
        await driver.see("line last")
        assert driver.page == "Monitor"
        await driver.press("escape")
        await driver.reach("Home")


async def test_lines_that_come_are_judged_by_the_filter() -> None:
    watch = FakeWatch(healthy(LINES), PREDICTION)
    app = monitor(watch)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        app.screen.use_filter("rank:5")  # type: ignore[attr-defined]
        new = tuple(LogLine(f"{i % 8}: new {i}", "out") for i in range(16))
        watch.push(replace(healthy(), lines=new))
        await driver.see("5: new 13")
        assert "6: new 14" not in driver.text


async def test_the_last_error_and_a_filter_that_hides_it() -> None:
    app = monitor(FakeWatch(healthy(LINES), PREDICTION))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        app.screen.use_filter("rank:5")  # type: ignore[attr-defined]
        await driver.press("E")
        await driver.see("RuntimeError: boom")
        await driver.see("The filter hid that line")


async def test_copying_says_what_and_saving_writes_what_is_shown(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    app = monitor(FakeWatch(healthy(LINES), PREDICTION))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("y")
        await driver.see("to the clipboard")
        assert app.clipboard.endswith("3: RuntimeError: boom\n3: line last")
        app.screen.use_filter("rank:5")  # type: ignore[attr-defined]
        await driver.press("Y", "enter")
        await driver.see("12 lines in")
        saved = (tmp_path / "gpt-145b-b200.log").read_text().splitlines()
        assert saved == [f"5: line {i}" for i in range(5, 100, 8)]


async def test_the_pager_gets_the_file_or_what_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr("tui.screens.monitor_log.show_in_pager", lambda app, *more: given.append(more))
    app = monitor(FakeWatch(healthy(LINES), PREDICTION))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("v")
        ((path, _, wanted, line),) = given
        assert line is None
        assert path == "/shared/runs/x/out.log"
        assert wanted == ""


async def test_where_the_terminal_cannot_be_given_away_that_is_said() -> None:
    app = monitor(FakeWatch(healthy(LINES), PREDICTION))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("v")
        await driver.see("A pager cannot be opened from here")


async def test_older_lines_come_when_one_goes_above_the_first() -> None:
    watch = FakeWatch(healthy(LINES), PREDICTION)
    watch.older = [LogLine(f"older {i}", "out") for i in range(30)]
    app = monitor(watch)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("home", "up")
        await until(pilot, lambda: len(app.screen.query_one(LogPane).store.held) == 132, "older lines")
        await driver.press("home")
        await driver.see("older 0")
        await driver.press("up")
        await driver.see("beginning of the log")


async def test_one_chart_in_full_and_back_by_esc() -> None:
    app = monitor(FakeWatch(healthy(LINES), PREDICTION))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("g")
        await until(pilot, lambda: "line last" not in driver.text, "the chart alone")
        assert [c.figure.name for c in app.screen.query(Chart) if c.display] == ["step_time_ms"]
        await driver.press("m")
        await driver.see("loss  ⣿")
        await driver.press("escape")
        await driver.see("line last")
        assert driver.page == "Monitor"


async def test_zoom_log_smooth_and_axis_show_in_the_title() -> None:
    app = monitor(FakeWatch(healthy(LINES), PREDICTION))
    async with app.run_test(size=(120, 36)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("g", "plus")
        await driver.see("in part")
        await driver.press("less_than_sign")
        await driver.see("not the newest")
        await driver.press("a")
        await until(pilot, lambda: "not the newest" not in driver.text, "the whole again")
        await driver.press("u")
        await driver.see("• smooth")
        await driver.press("o")
        await driver.see("  log")
        await driver.press("t")
        await driver.see("by hours")
        await driver.press("t")
        await driver.see("by tokens")


@pytest.mark.parametrize("name", ["tokens/s", "memory by rank"])
async def test_every_figure_can_be_reached_and_says_why_it_is_empty(name: str) -> None:
    app = monitor(FakeWatch(healthy(LINES), PREDICTION))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("m", "m")
        await driver.see(name)
        await driver.see("This log")
        await driver.press("M", "M")
        await driver.see("step time")


async def test_other_runs_are_chosen_and_drawn_beside_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    series = {"older": (np.arange(1.0, 201.0), np.full(200, 4200.0))}
    monkeypatch.setattr(
        "gpt_tune.workflows.series.compare",
        lambda runs, figure, axis: [
            type("S", (), {"name": r, "x": series[r][0], "y": series[r][1]}) for r in runs
        ],
    )
    app = monitor(FakeWatch(healthy(LINES), PREDICTION), run("older", "COMPLETED"))
    app.engine.comparing = type("C", (), {"drawn_of": staticmethod(lambda r: r.name)})  # type: ignore[attr-defined]
    async with app.run_test(size=(120, 36)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("g", "p")
        await driver.see("[ ]")
        await driver.press("enter")
        await driver.see("[x]")
        await driver.press("f2")
        await driver.see("b older 4.20")


async def test_a_run_without_steps_cannot_be_drawn_and_says_so() -> None:
    app = monitor(FakeWatch(healthy(LINES), PREDICTION), run("empty", "FAILED"))

    def drawn_of(record: Any) -> str:
        raise UserError("empty has no steps in its log.", "Choose another run.")

    app.engine.comparing = type("C", (), {"drawn_of": staticmethod(drawn_of)})  # type: ignore[attr-defined]
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("p", "enter", "f2")
        await driver.see("empty has no steps")


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (WatchUpdate(state="PENDING"), "Waiting for the job to start"),
        (WatchUpdate(state="RUNNING", waiting=("/x",)), "Waiting for the log file"),
        (WatchUpdate(state="RUNNING"), "Waiting for the first step"),
        (WatchUpdate(state="COMPLETED", ended=True), "No steps in this log"),
    ],
)
async def test_an_empty_chart_says_what_it_waits_for(update: WatchUpdate, words: str) -> None:
    app = monitor(FakeWatch(update, PREDICTION))
    async with app.run_test(size=(120, 36)) as pilot:
        driver = Driver(app, pilot)
        app.open("monitor", app.engine.runs()[0])
        await driver.see(words)


async def test_how_the_scheduler_is_asked_stands_on_top_and_silence_is_bad() -> None:
    engine = FakeEngine([run()], FakeWatch(healthy(LINES), PREDICTION))
    app = GptTune(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("in the last minute")
        engine.error = "dev: the controller does not answer"
        app.refresh_jobs(force=True)
        await driver.see("states may be old")


async def test_a_chain_says_which_job_this_is() -> None:
    record = run(tags=("chain=10",), job_ids=("4711", "4712", "4713"))
    app = GptTune(FakeEngine([record], FakeWatch(healthy(LINES), PREDICTION)))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("job 3 of at most 10")


async def test_leaving_closes_what_was_read_from() -> None:
    watch = FakeWatch(healthy(LINES), PREDICTION)
    app = monitor(watch)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("escape")
        await until(pilot, lambda: watch.closed, "the end of reading")


async def test_under_a_window_nothing_is_drawn_and_nothing_is_lost() -> None:
    watch = FakeWatch(healthy(LINES), PREDICTION)
    app = monitor(watch)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        page = app.screen
        await driver.press("slash")
        new = tuple(LogLine(f"{i % 8}: new {i}", "out") for i in range(50))
        watch.push(replace(healthy(count=400), lines=new))
        await until(pilot, lambda: len(page.query_one(LogPane).store.held) == 152, "the lines kept")
        assert "new 49" not in driver.text
        await driver.press("escape")
        await driver.see("new 49")
        await driver.see("400/5,000")


async def test_under_a_window_a_view_that_reads_stays_where_it_reads() -> None:
    watch = FakeWatch(healthy(LINES), PREDICTION)
    app = monitor(watch)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        page = app.screen
        await driver.press("home")
        await driver.see("line 0")
        await driver.press("slash")
        watch.push(replace(healthy(), lines=tuple(LogLine(f"new {i}", "out") for i in range(50))))
        await until(pilot, lambda: len(page.query_one(LogPane).store.held) == 152, "the lines kept")
        await driver.press("escape")
        await driver.see("50 new lines")
        assert "line 0" in driver.text
