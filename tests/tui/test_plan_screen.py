"""The plan screen: walk, turn single numbers, compare, see what was ruled out, go on with what was chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.errors import UserError
from gpt_tune.planner.types import SearchResult
from gpt_tune.profiles.schema import LayoutChoice
from gpt_tune.workflows import choices
from tests.tui.conftest import until
from tests.tui.fakes import PLANS, REJECTED, FakeEngine, FakePlanner
from tests.tui.flow import Driver
from tui.app import GptTune
from tui.widgets.knobs import Knobs
from tui.widgets.paint import text_of
from tui.widgets.plan_compare import compared
from tui.widgets.plan_lines import detail
from tui.widgets.rows import RowList

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
        await driver.press("right", "right", "right", "up")
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
        await driver.press("right", "right", "right", "up")
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


async def test_no_turn_is_lost_however_fast_the_keys_come(home: Path) -> None:
    from gpt_tune import planner

    app = planning(planner)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("layouts")
        await driver.press("right", "right", "right", "right")
        size = app.screen.current().layout.micro_batch_size  # type: ignore[attr-defined]
        await pilot.press("up", "up", "up", "down")
        await driver.settled()
        await driver.see(f"‹{size * 4}›")


async def test_a_turned_batch_goes_with_the_layout_and_another_row_takes_it_back(home: Path) -> None:
    from gpt_tune import planner

    app = planning(planner)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("layouts")
        await driver.press("right", "left", "left", "left", "up")
        await driver.see("batch ‹512›")
        await driver.settled()
        await driver.press("enter")
        await driver.see("other than the rows above")
        await driver.press("enter")
        await driver.reach("ReviewStep")
        assert app.draft.profile.training.global_batch_size == 512
        await driver.press("escape")
        await driver.reach("PlanStep")
        await driver.see("you")
        await driver.press("home", "enter")
        await driver.reach("ReviewStep")
        assert app.draft.profile.training.global_batch_size in (None, 256)
        assert app.draft.plan is not None
        assert app.draft.plan.layout.global_batch_size == 256


async def test_going_back_after_choosing_offers_every_layout_again(home: Path) -> None:
    planner = FakePlanner()
    app = planning(planner)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("down", "enter")
        await driver.reach("ReviewStep")
        await driver.press("escape")
        await driver.reach("PlanStep")
        await driver.see("3 of 2,140 layouts")
        assert planner.searches == 1
        assert app.screen.query_one("#plans", RowList).key == "2"


async def test_a_layout_that_a_profile_fixed_is_named_and_freed_by_a_key(home: Path) -> None:
    planner = FakePlanner()
    app = planning(planner)
    app.set_draft(
        replace(app.draft, profile=replace(app.draft.profile, layout=LayoutChoice({"zero_stage": 1})))
    )
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("fixes zero_stage: f frees them")
        await driver.press("f")
        await until(pilot, lambda: planner.searches == 2, "a second search")
        assert app.draft.profile.layout.fixed == {}


def test_a_comparison_marks_what_differs_and_lists_the_rest_once() -> None:
    lines = [text_of(line) for line in compared(PLANS[0], PLANS[2], ("layout 1", "layout 3"))]
    marked = [line for line in lines if line.startswith("≠")]
    assert any("TP" in line and "8" in line and "4" in line for line in marked)
    assert any("recompute" in line for line in marked)
    assert "DP 4" in lines[-1]
    assert not any(line.startswith("≠") for line in map(text_of, compared(PLANS[0], PLANS[0], ("a", "b"))))


@pytest.mark.parametrize(
    ("risk", "high", "words"),
    [
        (0.0, 100.0, "no risk of running out"),
        (0.12, 185.0, "risk of running out 12 %: part of what is above the limit"),
        (0.0, 185.0, "no risk of running out: part of what is above the limit"),
        (0.999, 220.0, "runs out for certain"),
    ],
)
def test_risk_and_interval_do_not_contradict_each_other(risk: float, high: float, words: str) -> None:
    memory = replace(PLANS[0].memory, oom_probability=risk, high_gib=high)
    said = " ".join(text_of(line) for line in detail(replace(PLANS[0], memory=memory), 78, False, False))
    assert words in said
    assert "limit 179 GiB" in said


@pytest.mark.parametrize(("width", "height"), [(30, 24), (60, 24), (80, 24), (200, 24), (40, 12)])
async def test_the_number_that_is_turned_is_always_in_view(width: int, height: int, home: Path) -> None:
    app = planning(FakePlanner())
    async with app.run_test(size=(width, height)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("right")
        knobs = app.screen.query_one(Knobs)
        for _ in range(22):
            await driver.press("right")
            lines = [knobs.render_line(y) for y in range(knobs.size.height)]
            assert "‹" in "".join(line.text for line in lines)
            assert all(line.cell_length == knobs.size.width for line in lines)
            assert knobs.chosen is not None
            assert knobs.chosen.means[:12] in lines[-1].text
