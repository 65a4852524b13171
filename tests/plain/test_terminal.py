"""Tests of the plain questions in a real terminal: questionary where it can, lines where it cannot."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pexpect
import pytest

from tests.cli.conftest import ROOT

pytestmark = pytest.mark.terminal


def spawn(work: Path, term: str, *arguments: str) -> pexpect.spawn:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": term, "PROMPT_TOOLKIT_NO_CPR": "1"}
    command = ["-m", "tui", "--plain", *arguments]
    more = {"env": environment, "cwd": str(work), "encoding": "utf-8", "timeout": 60, "dimensions": (24, 80)}
    return pexpect.spawn(sys.executable, command, **more)


@pytest.mark.usefixtures("home")
def test_questionary_with_enter_everywhere(tmp_path: Path) -> None:
    child = spawn(tmp_path, "xterm-256color", "--dry-run")
    for page in ("Cluster", "GPUs", "Training"):
        child.expect(f"{page}[^\n]*\n.*Go on")
        child.send("\r")
    child.expect("Review")
    child.expect("Show the script only")
    child.send("\r")
    child.expect("#!/")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


@pytest.mark.usefixtures("home")
def test_ctrl_c_ends_with_130_and_submits_nothing(tmp_path: Path) -> None:
    child = spawn(tmp_path, "xterm-256color")
    child.expect("Go on")
    child.sendcontrol("c")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130


@pytest.mark.usefixtures("home")
def test_a_dumb_terminal_gets_numbered_lines(tmp_path: Path) -> None:
    child = spawn(tmp_path, "dumb", "--dry-run")
    for _ in range(4):
        child.expect("Number, or Enter for the default: ")
        assert "\x1b" not in child.before
        child.sendline("")
    child.expect("#!/")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
