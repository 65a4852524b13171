"""Taking lines out of the screen: a pager at the right place, new files only, a clipboard that terminals accept."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from tui.paging import MOST_COPIED, clipboard_text, free_name, pager_command, save_lines


def programs(folder: Path, *names: str) -> None:
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def test_less_opens_at_the_end_or_at_what_was_searched_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path / "bin", "less")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("PAGER", raising=False)
    assert pager_command("/a b.log", "") == ["less", "-i", "+G", "--", "/a b.log"]
    assert pager_command("/a", "text", 1234) == ["less", "-i", "+1234g", "--", "/a"]
    assert pager_command("-x", "loss: 2.[5") == ["less", "-i", "+/loss\\: 2\\.\\[5", "--", "-x"]


def test_the_users_pager_wins_with_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path / "bin", "most", "more")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PAGER", "most -w '; rm -rf /'")
    assert pager_command("/x", "y") == ["most", "-w", "; rm -rf /", "/x"]
    monkeypatch.setenv("PAGER", "most 'open")
    assert pager_command("/x", "") == ["more", "/x"]
    monkeypatch.setenv("PAGER", "gone")
    assert pager_command("/x", "") == ["more", "/x"]


def test_no_pager_at_all_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UserError, match="No pager"):
        pager_command("/x", "")


def test_a_file_is_new_private_and_never_overwritten(tmp_path: Path) -> None:
    path = save_lines(tmp_path / "run.log", ["a", "ü"])
    assert path.read_text(encoding="utf-8") == "a\nü\n"
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(UserError, match="exists already"):
        save_lines(path, ["b"])
    assert path.read_text(encoding="utf-8") == "a\nü\n"
    assert free_name(tmp_path, "run.log") == tmp_path / "run-1.log"
    with pytest.raises(UserError, match="cannot be written"):
        save_lines(tmp_path / "no" / "folder", ["a"])


def test_a_clipboard_text_has_a_limit() -> None:
    assert clipboard_text(["a", "b"]) == ("a\nb", False)
    text, cut = clipboard_text(["x" * MOST_COPIED, "y"])
    assert cut
    assert len(text) == MOST_COPIED
