"""`gpt-tune doctor`: results in words, one next step, and the exit code that says whether anything is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.workflows import doctor
from gpt_tune.workflows.doctor import Check
from tests.cli.conftest import Run
from tests.tui.test_notify import write


def test_all_well_says_so_and_what_to_try(gpt_tune: Run) -> None:
    done = gpt_tune("doctor", "--json")
    data = done.json
    assert data["schema"] == "gpt-tune/doctor/1"
    wrong = [c for c in data["doctor"] if c["status"] in ("warning", "error")]
    assert done.code == (1 if wrong else 0)
    if not wrong:
        assert data["summary"] == "All is well: nothing needs your attention."
        assert "gpt-tune submit smoke" in data["next_step"]
    assert gpt_tune("doctor").out.startswith(data["summary"])


def test_what_is_wrong_stands_first(gpt_tune: Run, home: Path) -> None:
    state = home / ".local/state/gpt-tune"
    state.write_text("a file where a folder should be")
    done = gpt_tune("doctor")
    assert done.code == 1
    assert "your attention" in done.out.splitlines()[0]
    assert "next: Make it writable" in done.out or "next: " in done.out
    state.unlink()


@pytest.mark.parametrize(
    ("text", "word"),
    [("[keys]\n'home.qiut' = 'x'\n", "home.quit"), ("[notfy]\n", "notify"), ("[", "TOML")],
)
def test_wrong_settings_of_the_wizard_are_found(gpt_tune: Run, text: str, word: str) -> None:
    write(text)
    done = gpt_tune("doctor", "--json")
    assert done.code == 1
    (found,) = [c for c in done.json["doctor"] if c["check"] == "wizard"]
    assert word in found["text"] + found["fix"]


@pytest.mark.parametrize(
    ("statuses", "words", "step"),
    [
        (["ok", "info"], "All is well", "otherwise"),
        (["ok", "warning"], "One thing needs your attention: text 1", "fix 1"),
        (["warning", "error", "ok"], "2 things need your attention, first: text 1", "fix 1"),
        ([], "All is well", "otherwise"),
    ],
)
def test_in_words(statuses: list[str], words: str, step: str) -> None:
    checks = [Check(f"c{i}", s, f"text {i}", f"fix {i}") for i, s in enumerate(statuses)]  # type: ignore[arg-type]
    assert doctor.in_words(checks).startswith(words)
    assert doctor.next_step(checks, "otherwise") == step
