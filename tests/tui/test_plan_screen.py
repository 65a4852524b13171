"""The plan screen: walk, turn single numbers, compare, see what was ruled out, go on with what was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_tune.errors import UserError
from gpt_tune.planner.types import SearchResult
from gpt_tune.workflows import choices
from tests.tui.conftest import until
from tests.tui.fakes import REJECTED, FakeEngine, FakePlanner
from tests.tui.flow import Driver
from tui.app import GptTune

NOTHING = SearchResult((), REJECTED, 2140, 2140, 0.8)


def planning(planner: Any) -> GptTune:
    """An app whose draft is ready to be planned, for hardware that is not here."""
    app = GptTune(FakeEngine(planner=planner))
    draft = choices.start(None, choices.PLAN_ONLY, available=())
    for key, text in (("resources.gpu", "p6-b200"), ("resources.gpus", "64"), ("model.id", "gpt-145b")):
        draft = choices.put(draft, key, text)
    app.set_draft(draft)
    return app


async def opened(app: GptTune, driver: Driver) -> None:
    app.open("plan")
    await driver.reach("PlanStep")
    await driver.settled()


async def test_best_layout_is_on_top_with_reasons_and_its_rule(home: Path) -> None:
    app = planning(FakePlanner())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        for words in ("3 of 2,140 layouts", "compute", "stage 0", "limit 179 GiB", "[zero-dp1]", "tight"):
            await driver.see(words)


async def test_down_shows_the_next_one_and_enter_takes_it_into_the_draft(home: Path) -> None:
    app = planning(FakePlanner())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("down", "enter")
        await until(pilot, lambda: app.draft.plan is not None, "a chosen plan")
        assert app.draft.plan is not None
        assert app.draft.plan.rank == 2


async def test_turning_a_number_estimates_at_once_and_enter_keeps_it_as_a_row(home: Path) -> None:
    app = planning(FakePlanner())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("right")
        await driver.see("what if")
        await driver.press("right", "right", "right", "right", "up")
        await driver.see("‹3›")
        await driver.press("enter")
        await driver.see("you")
        await driver.see("4.40")
        await driver.press("enter")
        await until(pilot, lambda: app.draft.plan is not None, "a chosen plan")
        assert app.draft.plan is not None
        assert app.draft.plan.layout.micro_batch_size == 3


async def test_an_illegal_turn_says_why_and_what_instead_and_cannot_be_kept(home: Path) -> None:
    app = planning(FakePlanner())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("right", "right", "right", "right", "up")
        await driver.see("the pipeline engine refuses it")
        await driver.see("zero_stage=1")
        await driver.press("enter")
        await driver.see("refuses it")
        await driver.press("escape")
        await until(pilot, lambda: "what if" not in driver.text, "the end of what-if")
        assert driver.page == "PlanStep"


async def test_two_layouts_are_compared_with_their_differences(home: Path) -> None:
    app = planning(FakePlanner())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("c", "down")
        await driver.see("layout 1")
        await driver.see("layout 2")
        await driver.see("difference")
        await driver.press("escape")
        await driver.see("[zero-dp1]")
        assert driver.page == "PlanStep"


async def test_rejected_layouts_come_with_the_cure(home: Path) -> None:
    app = planning(FakePlanner())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("r")
        await driver.see("zero_stage=1")
        await driver.press("down")
        await driver.see("tensor_parallel=8")
        await driver.press("escape")
        await until(pilot, lambda: "why not" not in driver.text, "the table again")


async def test_nothing_that_fits_shows_the_near_misses_and_enter_does_not_go_on(home: Path) -> None:
    app = planning(FakePlanner(NOTHING))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("none of 2,140 layouts fits")
        await driver.see("zero_stage=1")
        await driver.press("enter", "right", "c")
        assert driver.page == "PlanStep"


async def test_a_request_the_planner_refuses_is_one_sentence(home: Path) -> None:
    class Refusing(FakePlanner):
        def search(self, request: Any) -> SearchResult:
            raise UserError("tensor_parallel=3 does not divide 96 heads.", "Use 2 or 4.")

    app = planning(Refusing())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("does not divide 96 heads")
        await driver.see("Use 2 or 4")
        await driver.press("escape")
        await driver.reach("Home")


async def test_a_bug_behind_the_screen_is_said_and_the_screen_lives_on(home: Path) -> None:
    class Broken(FakePlanner):
        def search(self, request: Any) -> SearchResult:
            raise ZeroDivisionError("division by zero")

    app = planning(Broken())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("Internal error in search")
        await driver.press("escape")
        await driver.reach("Home")


async def test_the_search_is_run_again_only_when_something_has_changed(home: Path) -> None:
    planner = FakePlanner()
    app = planning(planner)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        app.open("training")
        await driver.reach("TrainingStep")
        await driver.press("escape")
        await driver.reach("PlanStep")
        await driver.settled()
        assert planner.searches == 1
        assert app.put("training.global_batch_size", "512") is None
        app.open("training")
        await driver.reach("TrainingStep")
        await driver.press("escape")
        await until(pilot, lambda: planner.searches == 2, "a second search")


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 60), (40, 12)])
async def test_the_real_planner_at_every_size(home: Path, size: tuple[int, int]) -> None:
    from gpt_tune import planner

    app = planning(planner)
    async with app.run_test(size=size) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("layouts")
        await driver.press("right", "up")
        await driver.settled()
        await driver.press("escape", "r", "down", "escape", "c", "down")
        assert driver.page == "PlanStep"
