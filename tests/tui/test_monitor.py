"""The monitor over prepared runs: words for every state, errors found, nothing hostile, nothing asked for nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpt_tune.diagnosis.types import Diagnosis
from gpt_tune.errors import UserError
from gpt_tune.workflows.watch import Hang, LogLine, WatchUpdate
from tests.tui.conftest import until
from tests.tui.fakes import BROKEN, PREDICTION, FakeEngine, FakeWatch, healthy, run
from tests.tui.flow import Driver
from tui.app import GptTune
from tui.widgets.logpane import LogPane

LINES = [f"iteration {i}/5000 | elapsed time per iteration (ms): 3702.4" for i in range(200)]


def monitor(watch: FakeWatch, state: str = "RUNNING", **changes: Any) -> GptTune:
    return GptTune(FakeEngine([run(state=state, **changes)], watch))


async def opened(app: GptTune, driver: Driver) -> None:
    app.open("monitor", app.engine.runs()[0])
    await driver.reach("Monitor")


async def test_a_healthy_run_shows_progress_prediction_and_log() -> None:
    app = monitor(FakeWatch(healthy(LINES), PREDICTION))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        for words in (
            "RUNNING",
            "312/5,000",
            "ETA 4 h 50 min",
            "predicted 3.70",
            "as predicted",
            "iteration 199",
        ):
            await driver.see(words)
        await until(pilot, lambda: "┤" in driver.text, "an axis")
        assert "MFU 22 %" in driver.text


@pytest.mark.parametrize(
    ("state", "changes", "words"),
    [
        ("PENDING", {"reason": "Resources"}, "Next in line: it waits for nodes"),
        ("PENDING", {"reason": "JobHeldUser"}, "it will not start by itself"),
        ("TIMEOUT", {"reason": "TimeLimit"}, "reached its time limit"),
        ("FAILED", {"reason": "NonZeroExitCode", "exit_code": 7}, "exit code 7"),
        ("COMPLETED", {}, "Completed"),
    ],
)
async def test_each_state_is_said_in_words(state: str, changes: dict[str, Any], words: str) -> None:
    update = WatchUpdate(state=state, ended=state not in ("PENDING", "RUNNING"))
    app = monitor(FakeWatch(update), state, **changes)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see(state)
        await driver.see(words)


async def test_what_broke_stands_on_top_and_e_jumps_to_its_line() -> None:
    lines = [
        *LINES,
        BROKEN.excerpt + ". Tried to allocate 2.5 GiB",
        *[f"echo number {i}" for i in range(300)],
    ]
    update = replace(
        healthy(lines), state="FAILED", ended=True, diagnosis=Diagnosis("failed", BROKEN, (BROKEN,))
    )
    app = monitor(FakeWatch(update), "FAILED")
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("rank 17 on b200-3 ran out of GPU memory")
        await driver.see("recompute.granularity=selective")
        assert "Tried to allocate" not in driver.text
        await driver.press("e")
        await driver.see("Tried to allocate")


async def test_e_without_an_error_says_so() -> None:
    app = monitor(FakeWatch(healthy(LINES)))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("iteration 199")
        await driver.press("e")
        await driver.see("No error found")


@pytest.mark.parametrize(
    "error", [UserError("The log folder is gone.", "Ask why."), OSError("stale file handle")]
)
async def test_a_log_that_cannot_be_followed_stays_said(error: Exception) -> None:
    class Broken(FakeWatch):
        def poll(self) -> WatchUpdate:
            raise error

    app = monitor(Broken(healthy()))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see(str(error).split(".")[0])
        await driver.see("RUNNING")
        await driver.press("escape")
        await driver.reach("Home")


async def test_a_hang_is_said() -> None:
    hang = Hang(1980.0, 600.0, 312, "No step since iteration 312, 33 min ago (normal: under 10 min).")
    app = monitor(FakeWatch(replace(healthy(), hang=hang)))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("No step since iteration 312")


async def test_find_shows_the_match_and_the_hint_counts_new_lines() -> None:
    watch = FakeWatch(healthy(LINES))
    app = monitor(watch)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("iteration 199")
        await driver.press("slash")
        await driver.type("iteration 17/")
        await driver.press("enter")
        await driver.see("iteration 17/5000")
        assert "iteration 199" not in driver.text
        watch.push(WatchUpdate(state="RUNNING", lines=tuple(LogLine(f"new {i}", "out") for i in range(2341))))
        await driver.see("2,341 new lines")
        await driver.press("f")
        await driver.see("new 2340")


async def test_log_text_is_never_read_as_markup_or_control() -> None:
    hostile = ["[b]bold[/b] [/] [@click=app.quit]x[/]", "\x1b[2J\x1b]0;t\x07", "a\u202eb"]
    app = monitor(FakeWatch(healthy(hostile)))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("[@click=app.quit]x[/]")
        assert not {"\x1b", "\x07", "\u202e"} & set(driver.text)


async def test_leaving_the_screen_ends_its_thread() -> None:
    watch = FakeWatch(healthy(LINES))
    app = monitor(watch)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("iteration 199")
        await driver.press("escape")
        await driver.reach("Home")
        await until(
            pilot, lambda: not [w for w in app.workers if w.name == "follow"], "the end of the thread"
        )


async def test_panes_can_be_cycled_and_each_chart_is_reachable_at_80_columns() -> None:
    app = monitor(FakeWatch(healthy(LINES), PREDICTION))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("step time")
        seen = ""
        for _ in range(3):
            await driver.press("w")
            await pilot.pause()
            seen += driver.text
        assert "model TFLOPS" in seen
        assert driver.app.screen.query_one(LogPane).display


async def test_a_job_that_ended_cannot_be_cancelled() -> None:
    app = monitor(FakeWatch(WatchUpdate(state="COMPLETED", ended=True)), "COMPLETED")
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("c")
        await driver.see("has ended")
        assert driver.page == "Monitor"


async def test_a_silent_scheduler_leaves_the_last_state_and_says_how_old_it_is() -> None:
    engine = FakeEngine([run()])
    engine.error = "dev: the controller does not answer"
    app = GptTune(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        app.open("runs")
        await driver.reach("Runs")
        await driver.see("RUNNING")
        await driver.see("states may be old")


async def test_nothing_is_asked_while_nothing_runs_or_nobody_looks() -> None:
    engine = FakeEngine([run(state="COMPLETED")])
    app = GptTune(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await driver.press("tab")
        assert engine.asked == 0
        app.open("runs")
        await driver.reach("Runs")
        await driver.see("no scheduler is asked")
        assert engine.asked == 1
        assert app._due is None
