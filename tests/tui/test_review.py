"""The review: files, differences, findings at their lines, editing, and Enter where nothing can be submitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune.ledger import Ledger
from gpt_tune.workflows import choices, launch
from gpt_tune.workflows.draft import Draft
from tests.review.conftest import ran
from tests.tui.flow import Driver
from tests.tui.test_plan_screen import planning
from tui.app import GptTune
from tui.screens.review import ReviewStep
from tui.widgets.fileview import FileView
from tui.widgets.lines import Lines


@pytest.fixture
def draft(home: Path) -> Draft:
    made = choices.load_cluster(choices.start(cluster="local", available=("local",)), "local")
    return replace(made, profile=replace(made.profile, name="quick"))


@pytest.fixture
def app(home: Path, monkeypatch: pytest.MonkeyPatch) -> GptTune:
    """An app whose terminal can be given to an editor."""

    @contextmanager
    def suspended(self: GptTune) -> Iterator[None]:
        yield

    monkeypatch.setattr(GptTune, "suspend", suspended)
    monkeypatch.delenv("VISUAL", raising=False)
    return GptTune()


async def opened(app: GptTune, driver: Driver, draft: Draft) -> None:
    await driver.ready()
    app.set_draft(draft)
    app.open("review")
    await driver.reach("ReviewStep")
    await driver.see("lint:")


def said(app: GptTune) -> str:
    return app.screen.query_one("#help", Lines).plain


def shown(app: GptTune) -> str:
    return app.screen.query_one("#file", FileView).plain


def sed(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setenv("EDITOR", f"sed -i '{script}'")


async def test_what_was_edited_is_marked_checked_and_submitted(
    app: GptTune, draft: Draft, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver, draft)
        sed(monkeypatch, "s/^#SBATCH --ntasks=1/&\\n#SBATCH --mem=1G\\n#SBATCH --mem=2G/;$a true # mine")
        await driver.press("e")
        await driver.see("[job.sbatch edited")
        await driver.see("Edited by you: job.sbatch")
        await driver.settled()
        assert "true # mine" in shown(app)
        assert app.draft.edits["job.sbatch"].text.endswith("true # mine\n")
        await driver.press("u")
        await driver.settled()
        assert "true # mine" not in shown(app)
        assert not app.draft.edits


async def test_an_edit_outlives_going_back_and_another_setting(
    app: GptTune, draft: Draft, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver, draft)
        sed(monkeypatch, "$a true # mine")
        await driver.press("e")
        await driver.see("Edited by you")
        await driver.press("escape")
        assert app.put("smoke.seconds", "77") is None
        app.open("review")
        await driver.see("Edited by you")
        await driver.settled()
        assert "true # mine" in shown(app)


async def test_a_change_that_no_longer_fits_is_said_to_be_left_out(
    app: GptTune, draft: Draft, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver, draft)
        sed(monkeypatch, "s/--job-name=quick/--job-name=mine/")
        await driver.press("e")
        await driver.see("Edited by you")
        await driver.press("escape")
        app.set_draft(replace(app.draft, profile=replace(app.draft.profile, name="other")))
        app.open("review")
        await driver.see("left out")
        assert "--job-name=other" in shown(app)


async def test_a_finding_stands_under_its_line_in_words(
    app: GptTune, draft: Draft, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver, draft)
        sed(monkeypatch, "$a export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123")
        await driver.press("e")
        await driver.see("lint: 1 error")
        await driver.press("n")
        await driver.see("error: ")
        await driver.see("[secret]")
        await driver.press("enter")
        await driver.see("Submit anyway?")
        await driver.press("y")
        await driver.see("holds a secret")
        assert Ledger.open().runs() == []


@pytest.mark.parametrize(
    ("script", "words"),
    [("1d", "must start with #!"), ("s/1/1/w /dev/null\nq5", "code 5"), ("s/quick/qu\\x00ick/", "NUL")],
)
async def test_an_edit_that_cannot_be_taken_says_why_and_is_not_lost(
    app: GptTune, draft: Draft, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver, draft)
        sed(monkeypatch, script)
        await driver.press("e")
        await driver.see(words)
        assert not app.draft.edits
        if "code" not in words:
            await driver.see("opens what you wrote again")
            sed(monkeypatch, "1i #!/bin/bash" if script == "1d" else "s/\\x00//")
            await driver.press("e")
            if script == "1d":  # the line the first edit took away is there again
                await driver.see("#!/bin/bash")
            assert "NUL" not in said(app)


async def test_no_editor_is_one_sentence(app: GptTune, draft: Draft, monkeypatch: pytest.MonkeyPatch) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver, draft)
        for editor, words in (("no-such-editor-here", "no such program"), ("'", "no command")):
            monkeypatch.setenv("EDITOR", editor)
            await driver.press("e")
            await driver.see(words)


async def test_differences_from_the_last_run_show_by_sign(app: GptTune, draft: Draft) -> None:
    record = ran(launch.preview(draft), Ledger.open())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver, choices.put(draft, "smoke.seconds", "123"))
        await driver.see(record.run_id)
        await driver.press("v")
        app.screen.query_one("#tabs").turn(2)  # type: ignore[attr-defined]
        await driver.settled()
        text = shown(app)
        assert "+ " in text or "as in the earlier run" in text
        await driver.press("o")
        await driver.see("type to filter")
        await driver.see(record.run_id)
        await driver.press("escape")


async def test_the_settings_tab_says_where_each_value_comes_from(app: GptTune, draft: Draft) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver, choices.put(draft, "smoke.seconds", "123"))
        await driver.press("right")
        await driver.see("[settings]")
        await driver.see("smoke.seconds")
        await driver.see("you")
        await driver.see("found on this")


async def test_planning_only_writes_the_files_instead_of_submitting(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    app = planning(None)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        app.open("review")
        await driver.see("planning only")
        await driver.see("Enter Write files")
        assert "Submit" not in driver.text
        await driver.press("enter")
        await driver.see("which folder")
        await driver.press("ctrl+a", "ctrl+k")
        await driver.type("out")
        await driver.press("enter")
        await driver.see("Written.")
        script = (tmp_path / "out" / "job.sbatch").read_text()
        assert f"--chdir={tmp_path}/out\n" in script
        await driver.press("enter")
        await driver.see("which folder")
        await driver.press("ctrl+a", "ctrl+k")
        await driver.type("out")
        await driver.see("is not empty")
        await driver.press("enter")
        await driver.see("is not empty")
    assert Ledger.open().runs() == []


async def test_answers_that_come_after_the_submission_do_no_harm(app: GptTune, draft: Draft) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver, draft)
        screen = app.screen
        assert isinstance(screen, ReviewStep)
        await driver.settled()
        assert screen._checked is not None
        app.drop_draft()
        screen._checked_now(screen._checked)
        screen._start_known("at once")
        await pilot.pause()
        assert driver.page == "ReviewStep"
