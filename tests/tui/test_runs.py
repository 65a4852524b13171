"""The list of runs: search, tags, notes, two compared, and what starts from a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune import toml
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.profiles.build import to_dict
from gpt_tune.profiles.schema import Profile
from gpt_tune.workflows import choices, launch
from tests.review.conftest import ran
from tests.tui.conftest import until
from tests.tui.fakes import FakeEngine, run
from tests.tui.flow import Driver
from tui.app import GptTune
from tui.poller import Answer
from tui.screens.run_compare import change_words, compare_cells
from tui.widgets.rows import RowList


class KeptRuns(FakeEngine):
    """Runs of a real ledger; no scheduler is asked."""

    def runs(self) -> list[RunRecord]:
        return list(self.ledger.runs())

    def ask_jobs(self, before: Sequence[RunRecord], forced: bool) -> Answer:
        return Answer(self.runs(), 0, "", False)


@pytest.fixture
def app(home: Path) -> GptTune:
    def profile(seconds: int) -> str:
        plain = replace(Profile(), name="night", recipe="smoke", cluster="local")
        return toml.dump(to_dict(replace(plain, smoke=replace(plain.smoke, seconds=seconds))))

    with Ledger.open() as ledger:
        for record in (
            run("llama-70b", "FAILED", run_id="r20261130-000001-aaaa", token="a", shape={"id": "llama-3.1-70b"}),
            run("night", "COMPLETED", run_id="r20261130-000002-bbbb", token="b", cluster="local", recipe="smoke",
                profile=profile(60), gpus=0, note="first with FP8"),
            run("night", "COMPLETED", run_id="r20261130-000003-cccc", token="c", cluster="local", recipe="smoke",
                profile=profile(90), gpus=0, user_tags=("baseline",)),
            run("gpt-145b", "RUNNING", run_id="r20261130-000000-dddd", token="d"),
        ):  # fmt: skip
            ledger.add(record)
    return GptTune(KeptRuns())


async def opened(app: GptTune, driver: Driver) -> None:
    await driver.ready()
    app.open("runs")
    await driver.see("1 live, 3 ended")


def listed(app: GptTune) -> list[str]:
    return [row.key[-4:] for row in app.screen.query_one("#runs", RowList).rows]


async def test_live_runs_are_on_top_and_notes_and_tags_are_in_sight(app: GptTune) -> None:
    async with app.run_test(size=(120, 36)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        assert listed(app)[0] == "dddd"
        for words in ("baseline", "first with FP8", "llama-3.1-70b"):
            await driver.see(words)


async def test_search_narrows_while_typing_and_escape_brings_all_back(app: GptTune) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("slash")
        await driver.type("night -baseline")
        await driver.see("1 of 4 match")
        assert listed(app) == ["bbbb"]
        await driver.press("enter")
        await until(pilot, lambda: app.screen.query_one("#runs").has_focus, "focus on the list")
        await driver.press("escape")
        assert len(listed(app)) == 4
        assert driver.page == "Runs"
        await driver.press("slash")
        await driver.type("(((")
        await driver.see("0 of 4 match")
        await driver.press("escape", "escape")
        await driver.reach("Home")


async def test_a_note_and_tags_are_kept_and_bad_ones_stay_to_be_mended(app: GptTune) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        app.screen.query_one("#runs", RowList).go_to("r20261130-000002-bbbb")
        await driver.press("n")
        await driver.see("Your note on night")
        await driver.press("ctrl+a", "ctrl+k")
        await driver.type("second")
        await driver.press("enter")
        await driver.see("note  second")
        await driver.press("t")
        await driver.type("fast x=y")
        await driver.see("is no tag")
        await driver.press("enter")
        await driver.see("is no tag")
        await driver.press("backspace", "backspace", "backspace", "backspace", "enter")
        await driver.see("tags  fast")
        await driver.press("n", "ctrl+a", "ctrl+k", "enter")
        await until(pilot, lambda: Ledger.open().get("r20261130-000002-bbbb").note == "", "no note")
    kept = Ledger.open().get("r20261130-000002-bbbb")
    assert (kept.user_tags, kept.note) == (("fast",), "")


async def test_two_runs_are_compared_by_what_differs(app: GptTune) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        rows = app.screen.query_one("#runs", RowList)
        rows.go_to("r20261130-000002-bbbb")
        await driver.press("m")
        await driver.see("* night")
        rows.go_to("r20261130-000003-cccc")
        await driver.press("m")
        await driver.reach("RunCompare")
        await driver.see("smoke.seconds")
        await driver.see("90")
        await driver.press("escape")
        await driver.reach("Runs")
        assert "* night" not in driver.text


async def test_a_profile_is_saved_from_a_run(app: GptTune) -> None:
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        app.screen.query_one("#runs", RowList).go_to("r20261130-000003-cccc")
        await driver.press("s")
        await driver.see("Save these choices")
        await driver.press("enter")
        await driver.see("Saved as")
    from gpt_tune.profiles import store

    assert store.load("night").smoke.seconds == 90


async def test_resubmit_leads_to_the_review_of_the_same_choices(home: Path) -> None:
    draft = choices.load_cluster(choices.start(cluster="local", available=("local",)), "local")
    record = ran(launch.preview(choices.put(draft, "smoke.seconds", "77")), Ledger.open())
    app = GptTune(KeptRuns())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        app.open("runs")
        await driver.see("0 live, 1 ended")
        await driver.press("R")
        await driver.reach("ReviewStep")
        await driver.see(record.run_id)
        assert app.draft.profile.smoke.seconds == 77


async def test_no_runs_yet_and_every_key_still_does_no_harm(home: Path) -> None:
    app = GptTune(KeptRuns())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        app.open("runs")
        await driver.see("no runs yet")
        await driver.press("m", "n", "t", "s", "R", "a", "c", "enter")
        assert driver.page == "Runs"


@pytest.mark.parametrize(
    ("ratio", "words"), [(1.12, "+12 %"), (0.969, "-3.1 %"), (8.0, "8.0 times"), (0.5, "-50 %")]
)
def test_a_change_in_words(ratio: float, words: str) -> None:
    assert change_words(ratio) == words


def test_a_comparison_says_unknown_and_tables_in_words() -> None:
    cells = compare_cells({"key": "layout.fixed", "a": {"zero_stage": 1}, "b": None, "ratio": None})
    assert cells[1:3] == ("zero_stage=1", "-")


async def test_only_a_live_run_offers_to_be_cancelled(app: GptTune) -> None:
    async with app.run_test(size=(120, 30)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("home")
        await driver.see("Cancel job")
        await driver.press("end")
        await until(pilot, lambda: "Cancel job" not in driver.text, "a footer without it")
        await driver.press("home")
        await driver.see("Cancel job")
