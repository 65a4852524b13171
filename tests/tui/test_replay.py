"""The monitor over a recording: keys of the tape, no keys for jobs, nothing asked of any scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_tune.workflows import replay
from gpt_tune.workflows.replay import Tape
from tests.tui.conftest import until
from tests.tui.fakes import FakeEngine
from tests.tui.flow import Driver
from tui.app import GptTune
from tui.engine import Engine
from tui.widgets.chart import Chart


class Silent(FakeEngine):
    """Fakes but for the watch: a recording's is the real one."""

    def watch_of(self, record: Any, state_source: Any) -> Any:
        return Engine.watch_of(self, record, state_source)


def playing(at: float, speed: float = 1.0, paused: bool = True) -> tuple[GptTune, Tape]:
    tape = Tape(replay.find(), speed)
    tape.pause(paused)
    tape.seek(at)
    return GptTune(Silent(), tape=tape), tape


async def ready(driver: Driver) -> None:
    await driver.reach("Replay")
    charts = [c for c in driver.app.screen.query(Chart) if c.display]
    await until(driver.pilot, lambda: all(c.settled and len(c.data.series) for c in charts), "all charts")


async def test_it_plays_to_the_end_by_itself() -> None:
    app, tape = playing(0.0, 1000.0, paused=False)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await driver.reach("Replay")
        await driver.see("COMPLETED")
        await driver.see("predicted 909")
        await driver.see("ended")
        assert tape.over


async def test_keys_pause_seek_and_change_the_speed() -> None:
    app, tape = playing(43.0)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await ready(driver)
        await driver.see("paused")
        await driver.see("step 10/12")
        await driver.press("right_square_bracket")
        assert tape.speed == 2.0
        await driver.press("left_square_bracket", "left_square_bracket")
        assert tape.speed == 0.5
        await driver.press("1")  # 5.4 s: before the first step, and the log is shown only up to there
        await driver.see("Waiting for the first step")
        assert "iteration 1/" not in driver.text
        assert tape.position == pytest.approx(5.4)
        await driver.press("9")
        await driver.see("step 12/12")
        await driver.press("comma")
        assert tape.position == pytest.approx(45.9)
        await driver.press("full_stop", "full_stop", "full_stop", "full_stop")
        await driver.see("ended")
        await driver.press("space")  # from the end: once more
        await until(pilot, lambda: tape.position < 54.0, "the beginning")


async def test_nothing_of_a_job_can_be_done_or_is_asked() -> None:
    app, _ = playing(43.0)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await ready(driver)
        assert "Cancel" not in driver.text
        for key in ("c", "R", "s"):
            await driver.press(key)
            assert driver.page == "Replay"
        await driver.press("question_mark")
        await driver.see("not a live one")
        assert "Cancel the job" not in driver.text
        await driver.press("escape", "escape")
        await driver.reach("Home")
        engine = app.engine
        assert isinstance(engine, FakeEngine)
        assert engine.asked == 0


@pytest.mark.parametrize("key", ["x", "f4", "g", "m", "p", "l", "ctrl+y", "ctrl+p", "question_mark"])
async def test_whatever_else_the_monitor_can_do_is_harmless_here(home: Path, key: str) -> None:
    app, _ = playing(47.0)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await ready(driver)
        assert "Space Pause" in driver.text
        await driver.press(key)
        await driver.settled()
        await driver.press("escape")
        await pilot.pause()
        assert app.is_running
        assert driver.page in ("Replay", "Home")
