"""The whole way of a fine-tuning job through the wizard by keyboard: weights, data, plan, a turned number, review."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpt_tune.profiles import store
from gpt_tune.workflows import choices, launch
from tests.tui.conftest import until
from tests.tui.flow import Driver
from tui.app import GptTune


async def to_training(driver: Driver, gpu: str = "dgx-h200") -> None:
    """Planning alone, for a node type, as far as the job's questions, with qlora chosen there."""
    await driver.ready()
    await driver.press("enter")
    await driver.reach("ClusterStep")
    await driver.press("down", "enter")
    await driver.reach("GpusStep")
    await driver.press("space")
    await driver.type(gpu)
    await driver.press("enter")
    await driver.see(gpu)
    for page in ("ModelStep", "TrainingStep"):
        await driver.press("enter")
        await driver.reach(page)
    await driver.press("right", "right", "right")
    await driver.see("qlora")


async def answer(driver: Driver, *texts: str) -> None:
    """One field after another, from the one under the cursor down."""
    for text in texts:
        await driver.press("down")
        await driver.type(text)


@pytest.mark.parametrize("size", [(80, 24), pytest.param((140, 40), marks=pytest.mark.slow)])
async def test_from_weights_to_a_planned_job(home: Path, size: tuple[int, int]) -> None:
    app = GptTune()
    async with app.run_test(size=size, notifications=True) as pilot:
        driver = Driver(app, pilot)
        await to_training(driver)
        await driver.see("not given yet")
        await answer(driver, "Qwen/Qwen3-8B", "some/data")
        await driver.see("(weights' name)")
        for words in ("1.6 either way", "per 1,000 steps", "94 of 140 GiB", "no checkpointing"):
            await driver.see(words)
        await driver.press("enter")
        await driver.reach("PlanStep")
        await driver.settled()
        await driver.see("qwen3-8b on 8 x h200")
        assert app.draft.plan is None
        await driver.press("right")
        await driver.see("what if")
        await driver.press("up")  # the strategy: from a whole copy a GPU towards more that is split
        await until(pilot, lambda: not getattr(app.screen, "_calls", {}), "the estimate")
        if "zero-unsupported" in driver.text:  # ZeRO-1, which these trainers have not
            await driver.press("up")
            await driver.settled()
        await driver.press("enter")
        await driver.settled()
        await driver.press("enter")
        await driver.reach("ReviewStep")
        await driver.settled()
        assert app.draft.plan is not None
        assert app.draft.plan.layout.zero_stage == 2
        await driver.see("for each 1,000 steps")
        await driver.see("zero2")
        ready = launch.preview(app.draft)
        read = json.loads(next(f.content for f in ready.rendered.files if f.path == "finetune.json"))
        assert read["strategy"] == "zero2"
        assert read["micro_batch_size"] == app.draft.plan.layout.micro_batch_size
        # Back to the questions: nothing is lost, and the plan is there again.
        await driver.press("escape")
        await driver.reach("PlanStep")
        await driver.press("escape")
        await driver.reach("TrainingStep")
        await driver.see("Qwen/Qwen3-8B")
        await driver.see("some/data")


async def test_weights_of_no_known_shape_go_without_a_plan_and_say_why(home: Path) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await to_training(driver)
        await answer(driver, "nobody/mystery", "some/data")
        await driver.see("not known")
        await driver.press("enter")
        await driver.reach("ReviewStep")
        await driver.settled()
        await driver.see("nobody/mystery")
        ready = launch.preview(app.draft)
        assert ready.plan is None
        assert any("memory is estimated for the first" in w for w in ready.warnings)


async def test_a_contradiction_stays_on_the_page_with_its_numbers(home: Path) -> None:
    app = GptTune()
    async with app.run_test(size=(140, 40), notifications=True) as pilot:
        driver = Driver(app, pilot)
        app.set_draft(choices.start(store.load("qlora-qwen3-8b"), choices.PLAN_ONLY, available=()))
        app.set_draft(choices.put(app.draft, "resources.gpu", "dgx-h200"))
        app.open("training")
        await driver.reach("TrainingStep")
        await until(pilot, lambda: "Global batch" in driver.text, "the questions")
        for _ in range(20):
            if "Sequences in one step" in driver.text:
                break
            await driver.press("down")
        await driver.type("33")
        await driver.see("The nearest batch that they do is 32")
        await driver.press("enter")
        assert driver.page == "TrainingStep"
        assert app.draft.profile.training.global_batch_size is None
