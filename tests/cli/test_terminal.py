"""Tests of commands in a real terminal: questions before what costs, and tables that fit."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest

from gpt_tune.ledger import Ledger
from tests.cli.conftest import ROOT

pytestmark = [pytest.mark.terminal, pytest.mark.usefixtures("home")]


def spawn(work: Path, *arguments: str, columns: int = 80, **environment: str) -> pexpect.spawn:
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm-256color",
        "COLUMNS": str(columns),
        **environment,
    }
    more: dict[str, Any] = {"env": variables, "cwd": str(work), "encoding": "utf-8", "timeout": 60}
    return pexpect.spawn(sys.executable, ["-m", "tui", *arguments], dimensions=(24, columns), **more)


def finished(child: pexpect.spawn) -> tuple[int, str]:
    """The exit code and everything shown."""
    shown = child.read()
    child.close()
    return int(child.exitstatus), str(shown)


def test_submit_asks_first_and_no_means_no(tmp_path: Path) -> None:
    child = spawn(tmp_path, "submit", "smoke")
    child.expect("folder")
    child.expect(r"Submit\?")
    child.sendline("n")
    code, shown = finished(child)
    assert (code, "Not submitted" in shown) == (0, True)
    assert Ledger.open().runs() == []


def test_submit_interrupted_at_the_question(tmp_path: Path) -> None:
    child = spawn(tmp_path, "submit", "smoke")
    child.expect(r"Submit\?")
    child.sendcontrol("c")
    code, shown = finished(child)
    assert code == 130
    assert "Traceback" not in shown
    assert Ledger.open().runs() == []


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_tables_fit_the_terminal(tmp_path: Path, columns: int) -> None:
    code, shown = finished(spawn(tmp_path, "hardware", columns=columns))
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in shown.splitlines()]
    assert code == 0
    # Below some width a column keeps its first letters instead of vanishing.
    assert max(map(len, lines)) <= max(columns, 8 * 6 + 7 * 2)


def test_no_color_in_a_terminal(tmp_path: Path) -> None:
    _, shown = finished(spawn(tmp_path, "models"))
    assert "\x1b[1m" in shown
    _, shown = finished(spawn(tmp_path, "models", NO_COLOR="1"))
    assert "\x1b" not in shown
    _, shown = finished(spawn(tmp_path, "models", TERM="dumb"))
    assert "\x1b" not in shown


def test_json_is_indented_for_a_person(tmp_path: Path) -> None:
    _, shown = finished(spawn(tmp_path, "models", "gpt-1.3b", "--json"))
    assert '\r\n  "models": [\r\n' in shown
