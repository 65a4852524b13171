"""What the review does, from the command line: differences, findings, edited files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.ledger import Ledger
from gpt_tune.profiles import store
from gpt_tune.workflows import launch
from tests.review.conftest import ran
from tui.cli.run import run as cli


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert cli([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def earlier(home: Path) -> str:
    """A run of the profile "smoke" on this machine; its id."""
    profile = store.load("smoke")
    return ran(launch.prepare(store.with_settings(profile, ["cluster=local"])), Ledger.open()).run_id


def test_render_shows_what_differs_from_a_run_and_writes_nothing(
    earlier: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = said(capsys, "render", "smoke", "--set", "smoke.seconds=123", "--diff", "last")
    assert found["difference"]["run_id"] == earlier
    changed = [f for f in found["difference"]["files"] if f["kind"] == "changed"]
    assert any("123" in line["text"] and line["sign"] == "+" for f in changed for line in f["lines"])
    assert not (tmp_path / "smoke").exists()
    assert cli(["render", "smoke", "--diff", earlier]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert said(capsys, "render", "smoke", "--diff", "nosuch", code=2)["error"]["code"] == 2
    assert said(capsys, "render", "smoke", "--diff", "last", "--out", "x", code=2)["error"]["code"] == 2


def test_render_checks_the_files(earlier: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "render", "smoke", "--check")["findings"] == []


def test_a_profile_without_a_run_has_nothing_to_compare_with(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "No earlier run" in said(capsys, "render", "smoke", "--diff", "last", code=2)["error"]["message"]


def test_an_edited_script_is_what_would_be_submitted(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i '$a true # mine'")
    assert said(capsys, "submit", "smoke", "--edit", "job.sbatch", "--dry-run")["edited"] == ["job.sbatch"]
    assert cli(["submit", "smoke", "--edit", "job.sbatch", "--dry-run"]) == 0
    assert "true # mine" in capsys.readouterr().out
    error = said(capsys, "submit", "smoke", "--edit", "job.sbtch", "--dry-run", code=2)["error"]
    assert "job.sbatch" in error["hint"]
    monkeypatch.setenv("EDITOR", "sed -i '$a export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123'")
    error = said(capsys, "submit", "smoke", "--edit", "job.sbatch", code=2)["error"]
    assert "secret" in error["message"]
    assert (
        said(capsys, "submit", "smoke", "--edit", "job.sbatch", "--until-done", code=2)["error"]["code"] == 2
    )
    assert Ledger.open().runs() == []


def test_a_profile_is_saved_from_a_run(earlier: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "profiles", "save", "kept", "--from-run", earlier)["profiles"][0]["name"] == "kept"
    assert store.load("kept").recipe == "smoke"
    assert said(capsys, "profiles", "save", "x", "--from-run", "nosuch", code=2)["error"]["code"] == 2
    both = ("--from-run", earlier, "--from", "smoke")
    assert said(capsys, "profiles", "save", "x", *both, code=2)["error"]["code"] == 2
