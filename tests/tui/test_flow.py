"""The wizard from start to a running job on this machine, by keyboard, at 80x24."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.geometry import Size

from gpt_tune.ledger import Ledger
from gpt_tune.profiles.schema import Profile, Resources
from gpt_tune.workflows import choices
from tests.tui import fakes
from tests.tui.conftest import until
from tests.tui.flow import Driver, cancelling
from tui.app import GptTune
from tui.engine import Engine
from tui.look import look
from tui.widgets.chart import Chart

FEWER_THAN = 14  # key presses from the first screen to live charts


async def to_review(driver: Driver) -> None:
    """Enter, Enter, Enter, … as somebody would who reads nothing."""
    await driver.ready()
    for page in ("ClusterStep", "GpusStep", "TrainingStep", "ReviewStep"):
        await driver.press("enter")
        await driver.reach(page)
    await driver.see("#SBATCH")


async def test_enter_alone_leads_to_live_charts_of_a_running_job(home: Path) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        with cancelling(app):
            driver = Driver(app, pilot)
            await to_review(driver)
            await driver.press("enter")
            await driver.reach("Monitor")
            await driver.see("RUNNING")
            loss = app.screen.query_one("#chart-loss", Chart)
            await until(pilot, lambda: len(loss.data.series) > 1 and "┤" in loss.plain, "a loss chart")
            assert driver.keys < FEWER_THAN
            await driver.see("predicted")
            await driver.see("iteration")
            await driver.press("c")
            await driver.see("Cancel smoke")
            await driver.press("y")
            await driver.see("CANCELLED")
        (run,) = Ledger.open().runs()
        assert run.state == "CANCELLED"


async def test_after_the_wizard_is_gone_the_run_is_there_again_with_its_history(home: Path) -> None:
    first = GptTune()
    async with first.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(first, pilot)
        await to_review(driver)
        await driver.press("enter")
        await driver.reach("Monitor")
        loss = first.screen.query_one("#chart-loss", Chart)
        await until(pilot, lambda: len(loss.data.series) > 2, "steps")
        seen = loss.data.series.x[0]
    second = GptTune()
    async with second.run_test(size=(80, 24), notifications=True) as pilot:
        with cancelling(second):
            driver = Driver(second, pilot)
            await driver.ready()
            await driver.see("1 live (smoke")
            await driver.press("r")
            await driver.reach("Runs")
            await driver.see("smoke")
            await driver.press("enter")
            await driver.reach("Monitor")
            again = second.screen.query_one("#chart-loss", Chart)
            await until(pilot, lambda: len(again.data.series) > 2, "the history")
            assert again.data.series.x[0] == seen


async def test_two_enters_submit_one_job(home: Path) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        with cancelling(app):
            driver = Driver(app, pilot)
            await to_review(driver)
            await driver.press("enter", "enter", "enter")
            await driver.reach("Monitor")
            await driver.press("enter")
            assert len(Ledger.open().runs()) == 1


async def test_going_back_and_forth_loses_nothing_legal_or_not(home: Path) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        for page in ("ClusterStep", "GpusStep", "TrainingStep"):
            await driver.press("enter")
            await driver.reach(page)
        await driver.press("down")
        await driver.type("90")
        await driver.see("about 1 min 30 s")
        await driver.press("escape", "escape", "escape")
        await driver.reach("Home")
        await driver.see("unfinished")
        await driver.press("down", "enter")
        for page in ("ClusterStep", "GpusStep"):
            await driver.reach(page)
            await driver.press("enter")
        await driver.reach("TrainingStep")
        await driver.see(" 90 ")
        await driver.see("you")
        await driver.press("down")
        await driver.type("soon")
        await driver.see("! ")
        await driver.press("escape", "enter")
        await driver.reach("TrainingStep")
        await driver.see("soon")


async def test_enter_on_an_illegal_field_stays_and_says_why(home: Path) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        for page in ("ClusterStep", "GpusStep", "TrainingStep"):
            await driver.press("enter")
            await driver.reach(page)
        await driver.press("down")
        await driver.type("-5")
        await driver.press("enter")
        assert driver.page == "TrainingStep"
        assert "! " in driver.text


async def test_dry_run_says_what_would_happen_and_does_nothing(home: Path) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await to_review(driver)
        await driver.press("d")
        await driver.see("Nothing was done")
        assert Ledger.open().runs() == []
        assert not list((home / ".local/state/gpt-tune").glob("runs/*"))


async def test_a_profile_saved_on_the_way_is_there_to_start_from(home: Path) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await to_review(driver)
        await driver.press("f2")
        await driver.type("quick")
        await driver.press("enter")
        await driver.see("Saved as")
        await driver.press("escape", "escape", "escape", "escape", "p")
        await driver.reach("Profiles")
        await driver.see("quick")
        await until(pilot, lambda: any(r.key == "quick" for r in app.screen.query_one("#list").rows), "rows")  # type: ignore[attr-defined]
        app.screen.query_one("#list").go_to("quick")  # type: ignore[attr-defined]
        await driver.press("enter")
        await driver.reach("ClusterStep")
        assert app.draft.base == "quick"


async def test_submitting_into_a_place_that_cannot_be_written_is_one_sentence(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await to_review(driver)
        runs = home / ".local/state/gpt-tune/runs"
        runs.parent.mkdir(parents=True, exist_ok=True)
        runs.write_text("a file where the folder should be")
        await driver.press("enter")
        await driver.see("! ")
        assert driver.page == "ReviewStep"
        assert [r for r in Ledger.open().runs() if r.job_ids] == []


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 60), (40, 12), (20, 6), (8, 3)])
async def test_no_size_is_refused(home: Path, size: tuple[int, int]) -> None:
    app = GptTune()
    async with app.run_test(size=size, notifications=True) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        for page in ("ClusterStep", "GpusStep", "TrainingStep", "ReviewStep"):
            await driver.press("enter")
            await driver.reach(page)
        await driver.settled()
        await driver.press("question_mark", "escape", "ctrl+t", "escape", "escape")


@pytest.mark.parametrize("timer_lost", [True, False], ids=["timer lost", "signal lost"])
async def test_a_new_size_arrives_though_its_signal_or_timer_was_lost(
    home: Path, monkeypatch: pytest.MonkeyPatch, timer_lost: bool
) -> None:
    """What a busy machine does to Textual's one-shot timer, done on purpose: it never fires."""
    app = GptTune()
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        if timer_lost:
            app._resize_timer = app.set_timer(3600, lambda: None)
            await pilot.resize_terminal(120, 36)
        monkeypatch.setattr(app, "terminal_size", lambda: Size(120, 36))
        await until(pilot, lambda: app.screen.size == (120, 36), "the new size")
        assert app.size == (120, 36)


async def test_the_check_lists_what_is_missing_and_one_next_step(home: Path) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        await driver.press("end", "enter")
        await driver.reach("Doctor")
        await driver.see("Next  ")
        await driver.see("ok")
        await driver.press("down", "escape")
        await driver.reach("Home")


async def test_a_model_sold_under_another_size_is_found_by_that_name_and_says_so(home: Path) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        app.set_draft(choices.start(cluster=choices.PLAN_ONLY, available=()))
        app.open("model")
        await driver.reach("ModelStep")
        await driver.type("aws-gpt-103b")
        await driver.see("gpt-145b")
        await driver.see("145.6B parameters, not 103B")


async def test_a_home_that_cannot_be_written_says_so_once_and_planning_works(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", "/proc/nohome")
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        await driver.see("XDG_STATE_HOME")
        await driver.see("XDG_CONFIG_HOME")
        await driver.press("enter")
        await driver.reach("ClusterStep")


async def test_continuing_a_run_of_a_cluster_that_is_not_here_drops_what_belongs_there(home: Path) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        profile = Profile(
            cluster="testbed", recipe="smoke", resources=Resources(gpus=8, partition="dev", node="p6-b200")
        )
        app.begin(app.engine.choices.start(profile, base="earlier", origins={"recipe": "run earlier"}))
        await driver.reach("ClusterStep")
        await driver.see("Chosen for testbed and left out on local")
        assert "p6-b200" not in driver.text.partition("job ")[2]
        await driver.press("enter")
        await driver.reach("GpusStep")
        await driver.see("1 process on 1 node")
        assert app.draft.profile.resources == Resources()
        assert app.draft.profile.cluster == "local"


def test_an_adopted_job_is_never_offered_to_continue(home: Path) -> None:
    own, adopted = fakes.run("mine"), fakes.run("theirs", tags=("adopted",))
    engine = Engine()
    engine.runs = lambda: [adopted]  # type: ignore[method-assign]
    assert "nothing yet" in look(engine, None).words["last"]
    assert look(engine, None).last is None
    engine.runs = lambda: [adopted, own]  # type: ignore[method-assign]
    assert "mine" in look(engine, None).words["last"]
