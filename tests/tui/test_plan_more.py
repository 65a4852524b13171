"""The plan screen beyond the table: every field typed, all stages, orders, narrowing, near misses tried, commands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import planner
from gpt_tune.layouts.layout import Trainer
from gpt_tune.memory.types import MemoryEstimate, StageMemory
from gpt_tune.planner.types import Plan
from gpt_tune.workflows import choices, launch
from tests.tui.conftest import until
from tests.tui.fakes import PLANS, FakeEngine, FakePlanner
from tests.tui.flow import Driver
from tests.tui.test_plan_screen import NOTHING, opened, planning
from tui.app import GptTune
from tui.screens.dialogs import key_lines
from tui.widgets.lines import Lines
from tui.widgets.paint import text_of
from tui.widgets.plan_table import columns_for, short
from tui.widgets.rows import RowList
from tui.widgets.stage_view import stage_lines


def real(gpu: str = "p6-b200", gpus: int = 64, model: str = "gpt-145b") -> GptTune:
    """The real planner behind the screen, for a job that only names its machine and model."""
    app = GptTune(FakeEngine(planner=planner))
    draft = choices.start(None, choices.PLAN_ONLY, available=())
    for key, text in (
        ("resources.gpu", gpu),
        ("resources.gpus", str(gpus)),
        ("model.id", model),
        ("trainer.path", "/opt/mds"),
    ):
        draft = choices.put(draft, key, text)
    app.set_draft(draft)
    return app


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What went to the clipboard."""
    taken: list[str] = []
    monkeypatch.setattr(GptTune, "copy_to_clipboard", lambda self, text: taken.append(text))
    return taken


def keys_of(app: GptTune) -> list[str]:
    return [row.key for row in app.screen.query_one("#plans", RowList).rows]


async def test_typed_values_are_estimated_taken_and_submitted(home: Path) -> None:
    """Three fields typed, one illegal on the way: what is reviewed is the layout as typed."""
    app = real()
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("right")
        await driver.type("7")
        await driver.see("TP 7: Enter estimates it")
        await driver.press("enter")
        await driver.settled()
        await driver.see("instead:")
        await driver.press("enter")
        await driver.see("what if")
        await driver.type("8")
        await driver.press("enter", "right")
        await driver.type("99")
        await driver.press("backspace", "backspace")
        await driver.type("4")
        await driver.press("enter")
        await driver.settled()
        for _ in range(8):
            await driver.press("right")
        await driver.type("fp32")
        await driver.press("enter")
        await driver.settled()
        await driver.see("gradients added up in fp32")
        await driver.press("enter")
        await driver.see("you")
        await driver.press("enter")
        await driver.reach("ReviewStep")
        plan = app.draft.plan
        assert plan is not None
        assert (plan.layout.tensor_parallel, plan.layout.pipeline_parallel) == (8, 4)
        assert app.draft.profile.trainer.gradient_accumulation_dtype == "fp32"
        ready = launch.preview(app.draft)
        assert ready.plan is not None
        assert ready.plan.layout == plan.layout
        written = " ".join(f.content.decode() for f in ready.rendered.files if b"\0" not in f.content)
        assert "${TP:=8}" in written
        assert "${PP:=4}" in written


async def test_esc_drops_what_was_typed_before_it_leaves(home: Path) -> None:
    app = planning(FakePlanner())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("right")
        await driver.type("c")  # a key of the screen elsewhere
        await driver.see("‹c_›")
        await driver.press("escape")
        await driver.see("TP ‹8›")
        await driver.press("escape")
        await until(pilot, lambda: "what if" not in driver.text, "the table again")


async def test_esc_loses_no_number_and_del_begins_anew(home: Path) -> None:
    app = planning(FakePlanner())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("right", "right", "right", "right", "up", "up")
        await driver.see("‹4›")
        await driver.settled()
        await driver.press("escape")
        await until(pilot, lambda: "what if" not in driver.text, "the table again")
        await driver.press("down", "right")
        await driver.see("MBS ‹1›")  # another layout begins as it is
        await driver.press("escape", "up", "right")
        await driver.see("As you left them")
        await driver.see("MBS ‹4›")
        await driver.press("delete")
        await driver.see("MBS ‹2›")
        await driver.press("escape", "right")
        await driver.settled()
        assert "As you left them" not in driver.text


async def test_all_stages_are_in_the_picture_and_in_numbers(home: Path) -> None:
    app = real(gpus=2048, model="gpt-1t")
    app.set_draft(
        replace(
            app.draft,
            profile=replace(
                app.draft.profile, layout=replace(app.draft.profile.layout, fixed={"pipeline_parallel": 64})
            ),
        )
    )
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("m")
        await driver.see("limit 179")
        panel = app.screen.query_one("#detail", Lines)
        numbers = [line.split() for line in panel.plain.split("\n")]
        shown = {
            int(words[0].lstrip("!"))
            for words in numbers
            if len(words) == 10 and words[0].lstrip("!").isdigit()
        }
        assert shown >= set(range(1, 64))
        before = driver.text
        await driver.press("space")
        await until(pilot, lambda: driver.text != before, "the numbers below")
        for _ in range(10):
            await driver.press("space")
        await driver.press("escape")
        await driver.see("tokens/s a GPU")


@pytest.mark.parametrize("letters", [False, True])
@pytest.mark.parametrize("count", [1, 2, 8, 64, 300])
@pytest.mark.parametrize("limit", [None, 80.0, 30.0])
def test_the_picture_of_any_number_of_stages(letters: bool, count: int, limit: float | None) -> None:
    stages = tuple(
        StageMemory(
            i, 10.0, 10.0, 5.0, 30.0 * (1 - i / count), 2.0, 1.0, 0.5, 3.0, 3.0, 34.5 + 30.0 * (1 - i / count)
        )
        for i in range(count)
    )
    worst = stages[0].total
    memory = MemoryEstimate(
        worst - 6, worst - 3, worst, worst - 5, worst + 6, limit, 0.1, "optimizer", stages
    )
    lines = [text_of(line) for line in stage_lines(memory, 76, 10, letters)]
    assert all(len(line) <= 76 for line in lines[1:12] if count > 1)
    assert ("limit" in " ".join(lines)) is (limit is not None)
    assert f"{worst:.1f}" in " ".join(lines)
    if count > 1:
        picture = lines[1:11]
        first = [line[10] for line in picture]
        assert first[-1] in ("S" if letters else "█")
        assert "░" in "".join(picture)


async def test_the_same_layouts_by_another_order_and_another_search(home: Path) -> None:
    app = real()
    async with app.run_test(size=(100, 30)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        ranked = keys_of(app)
        await driver.press("o")
        await driver.see("the planner's ranking")
        await driver.type("least")
        await driver.press("enter")
        await driver.see("memory first")
        assert keys_of(app) != ranked
        assert sorted(keys_of(app)) == sorted(ranked)
        current = app.screen.current()  # type: ignore[attr-defined]
        assert current.memory.device_gib == min(p.memory.device_gib for p in app.screen._result.plans)  # type: ignore[attr-defined]
        await driver.press("o")
        await driver.type("fewest")
        await driver.press("enter")
        await driver.settled()
        await driver.see("fewest GPUs first")
        fewest = app.screen.current().layout.gpus  # type: ignore[attr-defined]
        assert fewest < 64
        await driver.press("enter")
        await driver.reach("ReviewStep")
        assert app.draft.profile.resources.gpus == fewest
        assert app.draft.plan is not None
        assert app.draft.plan.rank == 0, (
            "another objective's first is fixed, or submitting would search for another"
        )
        assert choices.profile_of(app.draft).layout.fixed["tensor_parallel"]


async def test_only_some_layouts_are_searched_and_freed_again(home: Path) -> None:
    app = real()
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("slash")
        await driver.see("Only layouts with")
        await driver.type("tp=3")
        await driver.press("enter")
        await driver.settled()
        await driver.see("fits")
        await driver.press("slash")
        await driver.see("tp=3")
        await driver.type("tp=x")  # what is offered goes with the first key
        await driver.see("whole number")
        await driver.press("backspace")
        await driver.type("8 zero=0")
        await driver.press("enter")
        await driver.settled()
        await driver.see("f frees them")
        plans = app.screen._result.plans  # type: ignore[attr-defined]
        assert plans
        assert {(p.layout.tensor_parallel, p.layout.zero_stage) for p in plans} == {(8, 0)}
        await driver.press("f")
        await driver.settled()
        await until(pilot, lambda: "f frees" not in driver.text, "no fixed keys")


async def test_enter_on_a_near_miss_tries_the_change_and_takes_it(home: Path) -> None:
    app = real()
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("r")
        await driver.see("Try the change")
        rejected = app.screen._result.rejected  # type: ignore[attr-defined]
        at = next(i for i, r in enumerate(rejected) if r.rule == "out-of-memory" and "=" in r.fix)
        for _ in range(at):
            await driver.press("down")
        await driver.press("enter")
        await driver.see(f"the near miss with {rejected[at].fix}"[:40])
        await driver.press("enter")
        await driver.see("you")
        assert app.screen.current().rank == 0  # type: ignore[attr-defined]


async def test_where_nothing_fits_the_change_leads_to_a_layout(home: Path) -> None:
    app = real("h100", 8, "gpt-1t")
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("Enter tries a change")
        assert "searching" not in driver.text
        await driver.press("enter")
        await driver.settled()
        await driver.see("other than the rows above")
        await driver.press("enter")
        await driver.see("you")
        await driver.press("enter")
        await driver.reach("ReviewStep")
        assert app.draft.plan is not None
        assert app.draft.profile.resources.gpus == app.draft.plan.layout.gpus > 8


async def test_with_nothing_at_all_no_key_crashes_and_none_goes_on(home: Path) -> None:
    app = planning(FakePlanner(replace(NOTHING, rejected=())))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("nothing was rejected")
        await driver.press("enter", "right", "m", "c", "r", "y", "Y", "space", "s", "n", "ctrl+y", "f")
        await driver.settled()
        assert driver.page == "PlanStep"
        await driver.press("escape")
        await driver.reach("Home")


async def test_the_commands_are_copied_whole(home: Path, copied: list[str]) -> None:
    app = real()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("y", "Y", "ctrl+y", "right", "up")
        await driver.settled()
        await driver.press("ctrl+y")
        await until(pilot, lambda: len(copied) == 4, "four copies")
        one, all_of_them, row, turned = copied
        assert one == row
        assert one.startswith("gpt-tune estimate --model gpt-145b --gpus 64 --gpu p6-b200")
        assert all_of_them.startswith("gpt-tune plan --model gpt-145b")
        size = app.screen._begun.layout.tensor_parallel  # type: ignore[attr-defined]
        assert f"tensor_parallel={size} " in one
        assert f"tensor_parallel={size} " not in turned


async def test_every_key_is_in_the_help_and_in_the_palette(home: Path) -> None:
    app = planning(FakePlanner())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        said = " ".join(text_of(line) for line in key_lines(app.screen))
        for key in ("→", " m ", " c ", " r ", " o ", " / ", " y ", " Y ", "Space", " s ", "F2", "Esc"):
            assert key in f" {said} ", key
        await driver.press("ctrl+p")
        await driver.type("near miss")
        await driver.press("escape")
        await driver.press("right")
        said = " ".join(text_of(line) for line in key_lines(app.screen))
        for key in ("←→", "↑↓", "Enter", "Esc"):
            assert key in said, key


def plan_of(**changes: Any) -> Plan:
    return replace(PLANS[0], layout=replace(PLANS[0].layout, **changes))


def test_columns_are_those_that_tell_these_layouts_apart() -> None:
    labels = [c.column.label for c in columns_for(PLANS)]
    assert "EP" not in labels
    assert "VP" not in labels
    more = [c.column.label for c in columns_for([plan_of(expert_parallel=8, virtual_pipeline=4), *PLANS])]
    assert {"EP", "VP"} <= set(more)
    assert "SP" in [c.column.label for c in columns_for([plan_of(sequence_parallel=True)])]
    assert "GPUs" in [c.column.label for c in columns_for([plan_of(data_parallel=8), *PLANS])]


def test_fine_tuning_has_its_own_columns() -> None:
    tuned = replace(PLANS[0], trainer=Trainer(name="qlora"))
    labels = [c.column.label for c in columns_for([tuned])]
    assert labels[:5] == ["strategy", "GPUs", "MBS", "accum", "checkpointing"]
    assert "TP" not in labels


@pytest.mark.parametrize(
    ("value", "text"),
    [(9.6, "10"), (9.4, "9"), (95.0, "95"), (0.23, ".2"), (0.96, "1"), (0.04, ".04"), (0.0, "0")],
)
def test_an_uncertainty_is_never_written_with_an_exponent(value: float, text: str) -> None:
    assert short(value) == text
