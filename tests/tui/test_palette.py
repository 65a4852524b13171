"""The command palette: what can be done on this screen comes first, the app's own last, all by name."""

from __future__ import annotations

from pathlib import Path

from tests.tui.fakes import FakeEngine, FakePlanner, run
from tests.tui.flow import Driver
from tests.tui.test_plan_screen import opened, planning
from tui.app import GptTune
from tui.palette import KeyCommands


async def test_the_keys_of_the_footer_come_first_and_quitting_last(home: Path) -> None:
    app = planning(FakePlanner())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        names = [command.name for command in KeyCommands(app.screen).commands()]
        assert names.index("What if") < names.index("Save profile") < names.index("Quit")
        assert names.index("Compare") < names.index("Search again")
        assert len(names) == len(set(names))


async def test_a_word_of_the_explanation_finds_a_command_too(home: Path) -> None:
    app = GptTune(FakeEngine([run("x", "COMPLETED")]))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        app.open("runs")
        await driver.see("0 live, 1 ended")
        hits = [hit async for hit in KeyCommands(app.screen).search("your own words")]
        assert any("Note" in str(hit.match_display) for hit in hits)  # type: ignore[union-attr]
