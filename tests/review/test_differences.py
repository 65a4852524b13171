"""The files of a job beside those of an earlier run: only what the choices changed is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger
from gpt_tune.workflows import choices, differences, launch
from gpt_tune.workflows.draft import Draft
from gpt_tune.workflows.launch import Launch
from tests.review.conftest import ran


def test_two_renderings_of_the_same_choices_do_not_differ(draft: Draft, ready: Launch) -> None:
    record = ran(ready, Ledger.open())
    again = launch.preview(draft)
    assert again.spec.run_id != record.run_id
    found = differences.beside_run(again.spec, again.rendered, record)
    assert [f.path for f in found.changed if f.path != "README.md"] == []


def test_a_changed_setting_shows_in_its_lines_and_nowhere_else(draft: Draft, ready: Launch) -> None:
    record = ran(ready, Ledger.open())
    longer = launch.preview(choices.put(draft, "smoke.seconds", "123"))
    found = differences.beside_run(longer.spec, longer.rendered, record)
    file = next(f for f in found.changed if any("123" in line.text for line in f.lines))
    plus = next(line for line in file.lines if line.sign == "+" and "123" in line.text)
    assert plus.number is not None
    new = next(f.content for f in longer.rendered.files if f.path == file.path).decode().split("\n")
    assert new[plus.number - 1] == plus.text


def test_files_that_came_and_went_are_named(draft: Draft, ready: Launch) -> None:
    record = ran(ready, Ledger.open())
    Path(record.run_dir, "old.json").write_text("{}")
    Path(record.run_dir, "README.md").unlink()
    found = differences.beside_run(ready.spec, ready.rendered, record)
    assert {f.path: f.kind for f in found.changed} == {"README.md": "new", "old.json": "gone"}
    assert "old.json" in differences.words(found.changed)


def test_a_run_whose_folder_is_gone_says_so(ready: Launch) -> None:
    record = replace(ran(ready, Ledger.open()), run_dir="/nowhere", script="/nowhere/job.sbatch")
    with pytest.raises(UserError, match="gone"):
        differences.beside_run(ready.spec, ready.rendered, record)


def test_bytes_that_are_no_text_are_compared_too(ready: Launch) -> None:
    record = ran(ready, Ledger.open())
    Path(record.run_dir, ready.rendered.files[0].path).write_bytes(b"\xff\xfe\0")
    found = differences.beside_run(ready.spec, ready.rendered, record)
    assert found.of(ready.rendered.files[0].path) is not None


def test_the_last_run_is_the_profiles_own(draft: Draft, ready: Launch) -> None:
    ledger = Ledger.open()
    assert differences.last_run(ledger, draft.profile) is None
    first = ran(ready, ledger)
    renamed = replace(draft, profile=replace(draft.profile, name="other"))
    ran(launch.preview(renamed), ledger)
    found = differences.last_run(ledger, draft.profile)
    assert found is not None
    assert found.run_id == first.run_id
    with pytest.raises(UserError, match="No earlier run"):
        differences.chosen_run(ledger, replace(draft.profile, name="third"), "last")
    assert differences.chosen_run(ledger, draft.profile, first.run_id[:19]).name == first.name


@pytest.mark.parametrize(
    ("old", "new", "signs"),
    [
        ("a\nb\nc", "a\nB\nc", " -+ "),
        ("a", "a", ""),
        ("", "x", "-+"),
        ("\n".join(map(str, range(30))), "\n".join([*map(str, range(29)), "x"]), "…   -+"),
    ],
)
def test_lines_of_a_difference(old: str, new: str, signs: str) -> None:
    assert "".join(line.sign for line in differences.diff_lines(old, new)) == signs
