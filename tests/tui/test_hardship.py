"""The wizard where terminals are unkind: tiny and huge, resized all the time, slow, hung up, dumb, few colours."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pexpect
import pytest

from tests.tui.fakes import FakeEngine, run
from tests.tui.flow import Driver
from tests.tui.terminal import ROOT, Terminal
from tests.tui.test_queue import Queued
from tui.app import GptTune

SIZES = ((20, 5), (40, 10), (80, 24), (120, 36), (300, 100))
SCREENS = ("runs", "queue", "profiles", "clusters", "doctor", "replay")


@pytest.mark.parametrize(
    ("size", "theme"),
    [*((size, "dark") for size in SIZES), ((80, 24), "light"), ((40, 10), "mono"), ((80, 24), "ansi-light")],
)
async def test_every_screen_is_drawn_at_every_size(home: Path, size: tuple[int, int], theme: str) -> None:
    app = GptTune(Queued())
    app.theme = theme
    async with app.run_test(size=size) as pilot:
        driver = Driver(app, pilot)
        for name in SCREENS:
            app.open(name, *([app.engine.demo_tape()] if name == "replay" else []))
            await pilot.pause()
            lines = driver.text.split("\n")
            assert lines[-1].strip(), f"{name}: no keys at the bottom"
            assert all(len(line) <= size[0] for line in lines)
            await driver.press("question_mark")
            await driver.reach("Help")
            await driver.press("escape", "escape")
            assert driver.page == "Home"


async def test_a_storm_of_sizes_ends_at_the_last_one(home: Path) -> None:
    app = GptTune(FakeEngine([run()]))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        app.open("runs")
        await driver.see("RUNNING")
        for i in range(40):
            await pilot.resize_terminal(20 + (i * 37) % 200, 5 + (i * 11) % 60)
        await pilot.resize_terminal(80, 24)
        await driver.see("RUNNING")
        await driver.see("Esc Back")


@pytest.mark.terminal
def test_a_terminal_that_does_not_read_is_caught_up_with(home: Path) -> None:
    with Terminal() as terminal:
        terminal.see("Next  ")
        for _ in range(12):  # more than a terminal's buffer holds, and nobody reads
            terminal.press("r", "?", "escape", "escape", "down", "up")
        terminal.until(
            lambda: "Plan, submit" in terminal.text and "Esc" not in terminal.text, "the first screen"
        )
        terminal.press("q")
        terminal.until(lambda: not terminal.child.isalive(), "the end")


@pytest.mark.terminal
def test_a_hang_up_ends_the_wizard_only(home: Path) -> None:
    with Terminal() as terminal:
        terminal.see("Next  ")
        os.kill(terminal.child.pid, signal.SIGHUP)
        terminal.until(lambda: not terminal.child.isalive(), "the end")


@pytest.mark.terminal
@pytest.mark.parametrize(("term", "colours"), [("linux", False), ("xterm-256color", True), ("screen", False)])
def test_few_colours_are_the_terminals_own(
    home: Path, monkeypatch: pytest.MonkeyPatch, term: str, colours: bool
) -> None:
    monkeypatch.delenv("COLORTERM", raising=False)
    with Terminal(TERM=term) as terminal:
        terminal.see("Next  ")
        assert bool(re.search(rb"\x1b\[[0-9;]*[34]8;[25];", terminal.raw)) is colours
        terminal.press("q")


@pytest.mark.terminal
@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_is_asked_in_plain_text(home: Path, term: str) -> None:
    env = {**os.environ, "TERM": term, "PYTHONPATH": str(ROOT)}
    child = pexpect.spawn(
        sys.executable, ["-m", "tui"], env=env, dimensions=(24, 80), timeout=60, cwd=str(ROOT)
    )
    child.expect("asking in plain text")
    child.expect_exact(":")  # its first question
    assert b"\x1b[?1049h" not in child.before
    child.close(force=True)


@pytest.mark.terminal
def test_a_recording_on_a_dumb_terminal_is_words(home: Path) -> None:
    env = {**os.environ, "TERM": "dumb", "PYTHONPATH": str(ROOT)}
    command = ["-m", "tui", "replay", "--speed", "1000"]
    child = pexpect.spawn(sys.executable, command, env=env, dimensions=(24, 80), timeout=60, cwd=str(ROOT))
    child.expect("median 910.7 ms")
    child.expect(pexpect.EOF)


@pytest.mark.terminal
@pytest.mark.skipif(not (ROOT / ".venv" / "bin" / "python").exists(), reason="no environment that make made")
def test_suspend_under_make_and_come_back(home: Path) -> None:
    env = {**os.environ, "TERM": "xterm-256color", "PS1": "ready> ", "TEXTUAL_ANIMATIONS": "none"}
    shell = pexpect.spawn("bash", ["--norc", "-i"], env=env, dimensions=(24, 80), timeout=60, cwd=str(ROOT))
    shell.expect_exact("ready> ")
    shell.sendline("make -o .venv/.run run")  # -o: as it is, nothing is set up anew
    shell.expect_exact("Plan, submit and watch")
    shell.send("\x1a")
    shell.expect("Stopped")
    shell.expect_exact("ready> ")
    shell.sendline("echo still $((40 + 2))")
    shell.expect_exact("still 42")
    shell.sendline("fg")
    shell.expect_exact("Plan, submit and watch")
    shell.send("q")
    shell.expect_exact("ready> ")
    shell.sendline("echo code $?")
    shell.expect_exact("code 0")
    shell.close(force=True)
