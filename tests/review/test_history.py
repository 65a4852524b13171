"""Finding runs again: search words, tags, notes; from the engine and from the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.workflows import history
from tui.cli.run import run as cli

BASE = RunRecord(
    run_id="r20261130-071531-aaaa", token="t", cluster="dev", scheduler="slurm", name="gpt-145b", recipe="custom",
    run_dir="/r", script="/r/j", created_at="2026-11-30T07:15:31Z", phase="ended", state="FAILED", job_ids=("4711",),
    shape={"id": "llama-3.1-8b"}, note="first try with FP8", user_tags=("baseline",), tags=("sweep=s1", "edited"),
)  # fmt: skip
LIVE = replace(
    BASE, run_id="r2", token="u", name="smoke", phase="submitted", state="RUNNING", shape=None, note="", user_tags=(),
    tags=(), job_ids=("4712",), recipe="smoke",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "FR"),
        ("145", "F"),
        ("LLAMA", "F"),
        ("fp8 first", "F"),
        ("state:failed", "F"),
        ("state:live", "R"),
        ("state:running", "R"),
        ("state:ended", "F"),
        ("tag:baseline", "F"),
        ("tag:base", ""),  # a whole tag, not a part of one
        ("tag:edited tag:sweep", "F"),
        ("-baseline", "R"),
        ("-state:live", "F"),
        ("dev smoke", "R"),
        ("4712", "R"),
        ("id:4711", "F"),
        ("nokey:thing", ""),
        ("-", "FR"),
        ("(*[", ""),
        ("name:", "FR"),
    ],
)
def test_every_word_must_match_and_no_text_is_wrong(text: str, found: str) -> None:
    assert "".join(r.state[0] for r in history.search([BASE, LIVE], text)) == found


def test_live_runs_come_first() -> None:
    assert [r.state for r in history.live_first([BASE, LIVE])] == ["RUNNING", "FAILED"]


def test_tags_are_added_and_taken_away_and_marks_of_ours_stay(home: Path) -> None:
    with Ledger.open() as ledger:
        ledger.add(BASE)
        record = history.change_tags(ledger, BASE.run_id, ["+fast", "good", "-baseline", "+fast"])
        assert record.user_tags == ("fast", "good")
        assert ledger.get(BASE.run_id).tags == BASE.tags
        with pytest.raises(UserError, match="no tag 'nosuch'"):
            history.change_tags(ledger, BASE.run_id, ["+kept?no", "-nosuch"][1:])
        assert ledger.get(BASE.run_id).user_tags == ("fast", "good")


@pytest.mark.parametrize(
    "word", ["+", "-", "", "a b", "x=1", "ü", "+\x1b[31m", "a" * 33, "-" + "b" * 40, "../x"]
)
def test_what_is_no_tag_is_refused_and_changes_nothing(home: Path, word: str) -> None:
    with Ledger.open() as ledger:
        ledger.add(BASE)
        with pytest.raises(UserError, match="is no tag"):
            history.change_tags(ledger, BASE.run_id, ["+ok", word])
        assert ledger.get(BASE.run_id) == BASE
    if word.strip() and " " not in word:
        assert history.tags_problem(word) is not None


def test_a_run_has_at_most_twenty_tags(home: Path) -> None:
    with Ledger.open() as ledger:
        ledger.add(BASE)
        with pytest.raises(UserError, match="at most 20"):
            history.change_tags(ledger, BASE.run_id, [f"t{i}" for i in range(20)])


@pytest.mark.parametrize(
    ("text", "words"), [("x" * 501, "at most 500"), ("a\nb", "one line"), ("a\0b", "one line")]
)
def test_what_is_no_note_is_refused(home: Path, text: str, words: str) -> None:
    with Ledger.open() as ledger:
        ledger.add(BASE)
        with pytest.raises(UserError, match=words):
            history.set_note(ledger, BASE.run_id, text)
        assert ledger.get(BASE.run_id).note == BASE.note


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert cli([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_command_line_notes_tags_and_searches(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Ledger.open() as ledger:
        ledger.add(BASE)
        ledger.add(replace(BASE, run_id="r3", token="v", name="other", job_ids=("9",), note="", user_tags=()))
    assert said(capsys, "tag", "r3", "+fast", "-missing", code=2)["error"]["message"].endswith(
        "no tag 'missing'."
    )
    assert said(capsys, "tag", "r3", "+fast")["tag"][0]["tags"] == ["fast"]
    assert said(capsys, "tag", "r3", "-fast", "+slow")["tag"][0]["tags"] == ["slow"]
    assert said(capsys, "note", "r3", "second", "try")["note"][0]["note"] == "second try"
    assert said(capsys, "note", "r3")["note"][0]["note"] == "second try"
    found = said(capsys, "jobs", "--search", "tag:slow")["jobs"]
    assert [(j["run_id"], j["tags"], j["note"], j["model"]) for j in found] == [
        ("r3", ["slow"], "second try", "llama-3.1-8b")
    ]
    assert said(capsys, "note", "r3", "")["note"][0]["note"] is None
    assert said(capsys, "jobs", "--search", "nothing-like-it")["jobs"] == []
    assert said(capsys, "note", "nosuch", code=2)["error"]["code"] == 2


def test_a_notes_control_characters_never_reach_the_terminal(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.open() as ledger:
        ledger.add(BASE)
    assert cli(["note", BASE.run_id, "red \x1b[31m text"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert cli(["jobs"]) == 0
    assert "\x1b" not in capsys.readouterr().out
