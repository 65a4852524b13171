"""The wizard in a real terminal: the whole path, SIGKILL, resize, suspend, no colour, little traffic."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpt_tune import jobs
from gpt_tune.ledger import Ledger
from tests.tui.terminal import Terminal

pytestmark = pytest.mark.terminal
QUIET_BYTES_PER_SECOND = 5000
WINDOW_SECONDS = 8.0


@pytest.fixture
def alone(home: Path) -> Iterator[Path]:
    """An empty home; whatever job a test starts is cancelled at its end."""
    yield home
    ledger = Ledger.open()
    for record in ledger.runs(open_only=True):
        jobs.cancel(record.run_id, ledger)


def to_monitor(terminal: Terminal) -> None:
    """Five times Enter, as a newcomer would, each as soon as the screen asks."""
    for asked in ("Next  ", "Where shall it run", "How many", "What shall it train", "#SBATCH"):
        terminal.see(asked)
        terminal.press("enter")
    terminal.see("RUNNING")
    terminal.see("iteration")
    terminal.until(lambda: terminal.text.count("┤") >= 2, "charts with an axis")


def test_killed_wizard_leaves_the_job_running_and_shows_it_again(alone: Path) -> None:
    with Terminal() as terminal:
        to_monitor(terminal)
        terminal.kill()
    (run,) = Ledger.open().runs()
    log = Path(jobs.resolved_log_paths(run)[0])
    size = log.stat().st_size
    deadline = time.monotonic() + 30
    while log.stat().st_size == size and time.monotonic() < deadline:
        os.sched_yield()
    assert log.stat().st_size > size, "the job ended with the wizard"
    with Terminal() as terminal:
        terminal.see("1 live")
        terminal.press("r")
        terminal.see("RUNNING")
        terminal.press("enter")
        terminal.until(lambda: terminal.text.count("┤") >= 2, "charts of the history")
        first = next(
            line for line in log.read_text().split("\n") if "iteration " in line and "lm loss" in line
        )
        number = re.findall(r"iteration\s+(\d+)/", first)[0]
        terminal.until(
            lambda: re.search(rf"^\s+{number} ", terminal.text, re.M), "the first step on the axis"
        )
        terminal.press("c")
        terminal.see("Cancel smoke")
        terminal.press("y")
        terminal.see("CANCELLED")


def test_every_size_is_drawn_and_nothing_is_lost_on_the_way(alone: Path) -> None:
    with Terminal() as terminal:
        to_monitor(terminal)
        for columns, rows in ((120, 36), (200, 60), (40, 10), (20, 5), (80, 24)):
            terminal.resize(columns, rows)
            terminal.until(lambda r=rows: terminal.screen.display[r - 1].strip(), "the last line drawn")  # type: ignore[misc]
        terminal.see("RUNNING")
        terminal.see("loss")


def test_suspend_gives_the_shell_back_and_resume_draws_again(alone: Path) -> None:
    with Terminal() as terminal:
        terminal.see("Next  ")
        terminal.press("ctrl+z")
        pid = terminal.child.pid
        terminal.until(lambda: "T" in _state(pid), "the stopped state")
        terminal.screen.reset()
        os.kill(pid, signal.SIGCONT)
        terminal.see("Plan, submit and watch")
        terminal.press("q")
        terminal.until(lambda: not terminal.child.isalive(), "the end")
        assert terminal.child.exitstatus == 0


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_no_color_means_no_colour(alone: Path) -> None:
    with Terminal(NO_COLOR="1", COLORTERM="truecolor") as terminal:
        to_monitor(terminal)
        colours = {tuple(map(int, c)) for c in re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)", terminal.raw)}
        assert all(max(c) - min(c) <= 1 for c in colours), f"coloured: {colours}"
        assert not re.search(rb"\x1b\[[0-9;]*3[1-6]m", terminal.raw)


def test_ctrl_c_twice_quits_and_the_terminal_is_whole_again(alone: Path) -> None:
    with Terminal() as terminal:
        terminal.see("Next  ")
        terminal.press("ctrl+c")
        terminal.see("again")
        terminal.press("ctrl+c")
        terminal.until(lambda: not terminal.child.isalive(), "the end")
        terminal.read()
        assert b"\x1b[?1049l" in terminal.raw, "the alternate screen was left"
        assert b"\x1b[?25h" in terminal.raw, "the cursor is visible"


def test_watching_a_job_writes_little(alone: Path) -> None:
    with Terminal() as terminal:
        to_monitor(terminal)
        before, start = terminal.received, time.monotonic()
        terminal.until(lambda: time.monotonic() - start > WINDOW_SECONDS, "the window")
        rate = (terminal.received - before) / WINDOW_SECONDS
        print(f"{rate:.0f} bytes/s")
        assert rate < 3 * QUIET_BYTES_PER_SECOND  # this job prints many steps a second, not one
