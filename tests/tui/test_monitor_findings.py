"""The findings screen: root cause and echoes apart, jumps to the line, dismiss, correct, the fix before it is used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpt_tune.diagnosis.types import Diagnosis, Finding
from gpt_tune.errors import UserError
from gpt_tune.workflows.cures import Change
from gpt_tune.workflows.resubmit import Cure
from tests.tui.conftest import until
from tests.tui.fakes import BROKEN, PREDICTION, FakeEngine, FakeWatch, healthy, run
from tests.tui.flow import Driver
from tui.app import GptTune
from tui.finding_lines import root_lines
from tui.screens.cure_dialog import cure_lines
from tui.widgets.paint import text_of

ECHO = Finding(
    "F33", "error", "rank 3 lost its peer", "Look at the root cause.", rank=3, echo_of="F12", count=63
)
LINES = [
    *[f"line {i}" for i in range(80)],
    BROKEN.excerpt + ". Tried 2 GiB",
    *[f"after {i}" for i in range(80)],
]


class Said:
    """Stands for gpt_tune.workflows.findings."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def dismiss(self, record: Any, key: str, why: str) -> None:
        self.calls.append(("dismiss", key, why))

    def correct(self, record: Any, key: str, to: str) -> None:
        self.calls.append(("correct", key, to))

    def restore(self, record: Any, key: str) -> None:
        self.calls.append(("restore", key))


class Cures:
    """Stands for gpt_tune.workflows.resubmit."""

    def __init__(self, answer: Cure | UserError) -> None:
        self.answer = answer

    def cure(self, record: Any) -> Cure:
        if isinstance(self.answer, UserError):
            raise self.answer
        return self.answer


CURE = Cure(BROKEN, (Change("layout.fixed.recompute.granularity", "none", "selective"),), (), True)


def failed(*findings: Finding, cures: Cure | UserError = CURE) -> tuple[GptTune, FakeWatch, Said]:
    root = findings[0] if findings and findings[0].severity == "error" else None
    update = replace(
        healthy(LINES), state="FAILED", ended=True, diagnosis=Diagnosis("failed", root, tuple(findings))
    )
    watch = FakeWatch(update, PREDICTION)
    engine = FakeEngine([run(state="FAILED")], watch)
    said = Said()
    engine.findings, engine.resubmit = said, Cures(cures)  # type: ignore[attr-defined]
    return GptTune(engine), watch, said


async def opened(app: GptTune, driver: Driver) -> None:
    app.open("monitor", app.engine.runs()[0])
    await driver.see("after 79")
    await driver.press("x")
    await driver.reach("Findings")


async def test_root_cause_and_echo_stand_apart_with_the_fix() -> None:
    app, _, _ = failed(BROKEN, ECHO)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        for words in ("Root cause", "ran out of GPU memory", "echo", "63", "recompute.granularity"):
            await driver.see(words)
        await driver.press("down")
        await driver.see("it only follows from F12")


async def test_enter_jumps_to_the_line() -> None:
    app, _, _ = failed(BROKEN, ECHO)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("enter")
        await driver.reach("Monitor")
        await driver.see("Tried 2 GiB")


async def test_dismissing_asks_why_and_the_thread_reads_it_anew() -> None:
    app, watch, said = failed(BROKEN, ECHO)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("down", "d")
        await driver.type("known")
        await driver.press("enter")
        await until(pilot, lambda: said.calls == [("dismiss", "F33", "known")], "the word kept")
        await until(pilot, lambda: bool(watch.judged), "the judgements read anew")


async def test_correcting_offers_every_known_finding() -> None:
    app, _, said = failed(BROKEN)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("o")
        await driver.type("F72 time limit")
        await driver.see("F72")
        await driver.press("enter")
        await until(pilot, lambda: said.calls == [("correct", "F12", "F72")], "the word kept")


async def test_a_dismissed_finding_stays_in_view_and_can_be_taken_back() -> None:
    app, _, said = failed(replace(BROKEN, severity="warning", dismissed="known"))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("dismissed")
        await driver.see("Nothing alarming")
        await driver.press("d")
        assert driver.page == "Findings"
        await driver.press("u")
        await until(pilot, lambda: said.calls == [("restore", "F12")], "taken back")


async def test_the_fix_is_shown_as_a_difference_first_and_esc_changes_nothing() -> None:
    app, _, _ = failed(BROKEN)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("R")
        for words in ("layout.fixed.recompute.granularity", "- none", "+ selective", "chooses a new layout"):
            await driver.see(words)
        await driver.press("escape")
        await driver.reach("Findings")


async def test_a_fix_that_is_not_known_says_so() -> None:
    app, _, _ = failed(BROKEN, cures=UserError("The partition allows no more.", "Use a chain."))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("R")
        await driver.see("The partition allows no more")


async def test_a_healthy_run_has_nothing_to_dismiss() -> None:
    app, _, said = failed()
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("Nothing alarming")
        await driver.press("d", "o", "u", "enter")
        assert driver.page == "Findings"
        assert not said.calls


def test_words_without_a_single_cause_and_for_what_is_new() -> None:
    two = Diagnosis("warning", None, (ECHO, replace(ECHO, severity="warning")))
    assert "2 things" in text_of(root_lines(two)[0])
    text = "\n".join(
        text_of(line) for line in cure_lines(Cure(BROKEN, (Change("site.time_limit", None, "2:00:00"),)))
    )
    assert "not set" in text
    assert "2:00:00" in text


async def test_a_line_that_is_not_held_is_where_the_pager_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("tui.screens.monitor_log.show_in_pager", lambda app, *more: given.append(more))
    far = replace(BROKEN, excerpt="a line long gone", line=1234, source="/shared/runs/x/out.log")
    app, _, _ = failed(far)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("enter")
        await driver.reach("Monitor")
        await driver.see("line 1,234 of out.log")
        await driver.press("v")
        assert given[0][0] == "/shared/runs/x/out.log"
        assert given[0][-1] == 1234
        await driver.press("v")
        assert given[1][-1] is None
