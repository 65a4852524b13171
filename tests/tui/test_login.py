"""A login node that asks: ssh gets the terminal for its question, the wizard comes back whole, and nobody is
interrupted for a poll that he did not ask for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpt_tune.ledger.record import RunRecord
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Site
from gpt_tune.schedulers import login
from tests.tui.conftest import until
from tests.tui.fakes import FakeEngine, run
from tests.tui.flow import Driver
from tests.tui.terminal import Terminal
from tui import poller
from tui.app import NOBODY_ASKED, GptTune
from tui.poller import Answer

# Asks for a code in the terminal, as a login node with a second factor does; then runs commands here.
SSH = """#!/bin/sh
for word; do
  case $before in
    -O) asked=$word;;
    -o) case $word in ControlPath=*) socket=${word#ControlPath=};; BatchMode=yes) batch=1;; esac;;
    -S) socket=$word;;
  esac
  [ "$word" = -T ] && remote=1
  before=$word
done
[ "$asked" = exit ] && exit 0
[ -n "$asked" ] && { [ -e "$socket" ]; exit; }
[ -n "$remote" ] && exec sh -c "$word"
[ -n "$batch" ] && { echo "Permission denied (keyboard-interactive)." >&2; exit 255; }
printf 'Verification code: ' >/dev/tty
read -r code </dev/tty
[ "$code" = 123456 ] || { echo "Permission denied (keyboard-interactive)." >&2; exit 255; }
: >"$socket"
"""


@pytest.fixture
def far(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster behind that ssh. It has no Slurm, which is what the wizard says once it is in."""
    program = tmp_path / "ssh"
    program.write_text(SSH)
    program.chmod(0o755)
    runtime = tmp_path / "r"
    if len(str(runtime)) > 50:
        runtime = Path(f"/tmp/gtask-{os.getpid()}")
    runtime.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("GPT_TUNE_SSH", str(program))
    sites.save(Site(cluster="far", ssh="ann@login.far"))
    return runtime


@pytest.mark.terminal
def test_the_question_is_answered_in_the_terminal_and_the_wizard_comes_back(far: Path) -> None:
    with Terminal() as terminal:
        terminal.see("Verification code:")
        assert "the login node asks" in terminal.text
        terminal.press("123456", "enter")
        terminal.see("Next  ")
        assert list((far / "gpt-tune").iterdir()), "the line that ssh keeps"
        terminal.press("q")


@pytest.mark.terminal
def test_a_wrong_answer_leaves_the_wizard_usable_and_says_what_to_run(far: Path) -> None:
    with Terminal(columns=120) as terminal:
        terminal.see("Verification code:")
        terminal.press("000000", "enter")
        terminal.see("Next  ")
        terminal.press("q")


class Asking(FakeEngine):
    """Its poll needs a login, as after a line to the login node was lost."""

    def __init__(self, records: Sequence[RunRecord]) -> None:
        super().__init__(records)
        self.answers: list[int] = []

    def ask_jobs(self, before: Sequence[RunRecord], forced: bool) -> Answer:
        assert login.handler is not None
        self.answers.append(login.handler(["ssh", "far"]))
        return super().ask_jobs(before, forced)


async def test_only_what_the_user_asked_for_may_take_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def ask(app: GptTune, command: list[str]) -> int:
        asked.append(command)
        return 0

    monkeypatch.setattr(GptTune, "_ssh_asks", ask)
    monkeypatch.setattr(poller, "BEHIND_SECONDS", 0.0)
    engine = Asking([run()])
    app = GptTune(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await Driver(app, pilot).ready()  # the first screen has asked for the runs it found
        await until(pilot, lambda: engine.answers and not app._asking, "the answer to what was asked for")
        app._quick, app._due = 0, None
        asked_for = len(engine.answers)
        assert engine.answers == [0] * asked_for
        app._due = 0.0
        await until(pilot, lambda: len(engine.answers) > asked_for, "a poll by itself")
        assert engine.answers[asked_for] == NOBODY_ASKED
    assert asked == [["ssh", "far"]] * asked_for
    assert login.handler is None, "given back at the end"


async def test_without_a_terminal_nobody_is_asked(home: Path) -> None:
    app = GptTune(FakeEngine())
    async with app.run_test(size=(80, 24)):
        assert app._ssh_asks(["false"]) == NOBODY_ASKED


async def test_what_a_poll_brings_is_news_on_any_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "BEHIND_SECONDS", 0.0)
    engine = FakeEngine([run("trial", "PENDING")])
    app = GptTune(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        app.know_runs(engine.runs())
        app.open("clusters")
        engine.prepared = [run("trial", "RUNNING")]
        app.refresh_jobs()
        await driver.see("trial (job 4711) has started")
        engine.prepared = [run("trial", "FAILED")]
        app.refresh_jobs()
        await driver.see("has failed: FAILED")
        asked = engine.asked
        app._tick()
        assert engine.asked == asked, "nothing lives any more"


async def test_several_seconds_apart_while_another_screen_is_shown() -> None:
    engine = FakeEngine([run()])
    app = GptTune(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        app.know_runs(engine.runs())
        await until(pilot, lambda: engine.asked == 1, "the first poll")
        app._due = 0.0
        app._tick()
        await pilot.pause()
        assert engine.asked == 1, "the next one comes a minute later"
