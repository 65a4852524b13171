"""Editing from the review in a real terminal: the editor gets it whole, and the wizard gets it back."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from gpt_tune.ledger import Ledger
from tests.tui.terminal import Terminal

pytestmark = pytest.mark.terminal
EDITOR = """
import sys
print("EDITOR HERE, one line please:", flush=True)
line = sys.stdin.readline().strip()
with open(sys.argv[1], "a") as script:
    script.write("true # " + line + "\\n")
"""


@pytest.fixture
def editor(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that reads a line from the terminal, as editors do."""
    program = tmp_path / "an editor.py"
    program.write_text(EDITOR)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{shlex.quote(sys.executable)} {shlex.quote(str(program))}")


@pytest.mark.usefixtures("editor")
def test_an_editor_has_the_terminal_to_itself_and_gives_it_back() -> None:
    with Terminal() as terminal:
        for asked in ("Next  ", "Where shall it run", "How many", "What shall it train"):
            terminal.see(asked)
            terminal.press("enter")
        terminal.see("lint:")
        terminal.press("e")
        terminal.see("EDITOR HERE")
        terminal.press("typed by hand", "enter")
        terminal.see("[job.sbatch edited")
        terminal.see("Edited by you")
        assert "EDITOR HERE" not in terminal.text
        terminal.press("d")
        terminal.see("Nothing was done")
        terminal.press("escape")
        terminal.see("What shall it train")
    assert Ledger.open().runs() == []
