"""The list of profiles: where values come from, editing, sharing, and names of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune.profiles import store
from gpt_tune.profiles.schema import Profile
from tests.tui.conftest import until
from tests.tui.fakes import FakeEngine
from tests.tui.flow import Driver
from tui.app import GptTune
from tui.widgets.fields import Entry
from tui.widgets.lines import Lines
from tui.widgets.rows import RowList


@pytest.fixture
def app(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> GptTune:
    @contextmanager
    def suspended(self: GptTune) -> Iterator[None]:
        yield

    monkeypatch.setattr(GptTune, "suspend", suspended)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.chdir(tmp_path)
    store.save(replace(Profile(), recipe="smoke", description="for the night"), "night")
    return GptTune(FakeEngine())


async def opened(app: GptTune, driver: Driver) -> None:
    app.open("profiles")
    await driver.see("for the night")
    app.screen.query_one("#list", RowList).go_to("night")
    await driver.settled()


async def test_below_the_list_stands_where_each_value_comes_from(app: GptTune, tmp_path: Path) -> None:
    (tmp_path / "gpt-tune.toml").write_text("[smoke]\nseconds = 7\n")
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("(profile night)")
        await driver.see("smoke.seconds  7  (project file)")


async def test_editing_checks_before_it_keeps_and_loses_nothing(
    app: GptTune, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        monkeypatch.setenv("EDITOR", "sed -i 's/recipe/recipie/'")
        await driver.press("e")
        await driver.see("Did you mean 'recipe'?")
        assert store.load("night").recipe == "smoke"
        monkeypatch.setenv("EDITOR", "sed -i 's/recipie/recipe/;s/for the night/for the day/'")
        await driver.press("e")
        await driver.see("Saved as")
        await driver.see("for the day")
        monkeypatch.setenv(
            "EDITOR", "sed -i '$a [site.environment.variables]\\nHF_TOKEN = \"hf_abcdefghijklmnopqrstuv\"'"
        )
        await driver.press("e")
        await driver.see("looks like a secret")
    assert store.load("night").description == "for the day"


async def test_a_profile_goes_out_into_a_file_and_comes_back_from_one(app: GptTune, tmp_path: Path) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("w")
        await driver.see("into which file")
        await driver.press("enter")
        await driver.see("Written:")
        await driver.press("w")
        await driver.see("is there already")
        await driver.press("escape", "x", "y")
        await until(pilot, lambda: not store.is_own("night"), "the removal")
        await driver.press("i")
        await driver.type("nosuch.toml")
        await driver.see("no such file")
        await driver.press("ctrl+a", "ctrl+k")
        await driver.type("night.toml")
        await driver.press("enter")
        await driver.see("Kept as")
    assert store.load("night").description == "for the night"


async def test_a_starter_is_not_removed_and_a_broken_file_hides_no_other(app: GptTune, home: Path) -> None:
    (home / ".config/gpt-tune/profiles/broken.toml").write_text("recipie = 'x'\n")
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        rows = app.screen.query_one("#list", RowList)
        rows.go_to("smoke")
        await driver.press("x")
        await driver.see("shipped starter")
        rows.go_to("broken")
        await driver.see("recipie")


@pytest.mark.parametrize(
    "name", ["../../etc/x", "a b", "läuft", "-", ".hidden", "x" * 65, "$(reboot)", "a\u202eb"]
)
async def test_a_bad_name_says_why_and_stays_to_be_mended(app: GptTune, name: str) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        from gpt_tune.workflows import choices
        from tui.screens.save_profile import ask_profile_name

        app.set_draft(choices.start(cluster=choices.PLAN_ONLY, available=()))
        ask_profile_name(app, app.draft)
        await driver.see("Its name")
        entry = app.screen.query_one(Entry)
        entry.value = name
        said = app.screen.query_one("#said", Lines)
        await until(pilot, lambda: "is no good profile name" in said.plain, "the sentence")
        await driver.press("enter")
        await driver.settled()
        assert "is no good profile name" in said.plain
        assert entry.value == name
        entry.value = "good"
        await driver.see("gpt-tune submit good")
        await driver.press("enter")
        await until(pilot, lambda: store.is_own("good"), "the profile")
    assert not store.is_own(name)


async def test_replacing_a_profile_is_said_before_it_is_done(app: GptTune) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        from gpt_tune.workflows import choices
        from tui.screens.save_profile import ask_profile_name

        app.set_draft(choices.start(cluster=choices.PLAN_ONLY, available=()))
        ask_profile_name(app, app.draft)
        await driver.see("Its name")
        app.screen.query_one(Entry).value = "night"
        await driver.see("Enter replaces it")
        await driver.press("escape")
    assert store.load("night").description == "for the night"
