"""Changes of generated files by hand: they outlive a new rendering, or are said to be lost, and are never half made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpt_tune.errors import UserError
from gpt_tune.jobs.submitting import intent
from gpt_tune.workflows import choices, edits, launch
from gpt_tune.workflows.draft import Draft
from gpt_tune.workflows.launch import Launch


def script_of(ready: Launch) -> str:
    return next(f.content for f in ready.rendered.files if f.path == ready.rendered.script).decode()


def with_edit(draft: Draft, ready: Launch, old: str, new: str) -> Draft:
    """The draft with one text replaced in its job script."""
    text = script_of(ready)
    assert old in text
    edit = edits.edited(ready.spec, ready.rendered, ready.rendered.script, text.replace(old, new, 1))
    return replace(draft, edits={edit.path: edit})


def test_a_change_is_in_what_is_submitted_although_the_run_has_new_names(draft: Draft, ready: Launch) -> None:
    changed = launch.preview(with_edit(draft, ready, "RUN_DIR=", "export MINE=1\nRUN_DIR="))
    script = script_of(changed)
    assert changed.edited == (ready.rendered.script,)
    assert "export MINE=1\n" in script
    assert changed.spec.run_id in script
    assert ready.spec.run_id not in script
    assert ready.spec.token not in script


def test_a_change_outlives_other_settings(draft: Draft, ready: Launch) -> None:
    edited = with_edit(draft, ready, "RUN_DIR=", "export MINE=1\nRUN_DIR=")
    changed = launch.preview(choices.put(edited, "smoke.seconds", "90"))
    assert "export MINE=1\n" in script_of(changed)
    assert changed.lost == ()


def test_a_change_of_lines_that_settings_changed_too_is_said_to_be_lost(draft: Draft, ready: Launch) -> None:
    edited = with_edit(draft, ready, "#SBATCH --job-name=quick", "#SBATCH --job-name=mine")
    renamed = replace(edited, profile=replace(edited.profile, name="other"))
    changed = launch.preview(renamed)
    assert "--job-name=other" in script_of(changed)
    assert [path for path, _ in changed.lost] == [ready.rendered.script]
    assert changed.edited == ()


def test_a_file_that_another_job_does_not_have_is_said_to_be_lost(draft: Draft, ready: Launch) -> None:
    edited = with_edit(draft, ready, "RUN_DIR=", "export MINE=1\nRUN_DIR=")
    gone = replace(edited.edits[ready.rendered.script], path="no/such.json")
    changed = launch.preview(replace(edited, edits={gone.path: gone}))
    assert changed.lost[0][0] == "no/such.json"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "#!"),
        ("echo hello\n", "#!"),
        ("#!/bin/bash\n\0\n", "NUL"),
        ("#!/bin/bash\n" + "x" * 2_000_000, "1 MB"),
    ],
)
def test_a_text_that_no_job_script_can_be_is_refused(ready: Launch, text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        edits.edited(ready.spec, ready.rendered, ready.rendered.script, text)


def test_logs_are_looked_for_where_an_edited_script_sends_them(draft: Draft, ready: Launch) -> None:
    (log,) = ready.rendered.log_paths
    changed = launch.preview(with_edit(draft, ready, log, "mine/%j.log"))
    assert changed.rendered.log_paths == (f"{changed.spec.run_dir}/mine/%j.log",)
    record = intent(changed.spec, changed.rendered, changed.scheduler)
    assert record.log_paths == changed.rendered.log_paths


def test_another_size_than_the_plans_is_said(draft: Draft, ready: Launch) -> None:
    changed = launch.preview(with_edit(draft, ready, "#SBATCH --nodes=1", "#SBATCH --nodes=2"))
    assert any("--nodes=2" in w and "plan has 1" in w for w in changed.warnings)


@pytest.mark.parametrize(
    ("base", "yours", "fresh", "merged"),
    [
        ("a\nb\nc\nd\n", "a\nB\nc\nd\n", "a\nb\nc\nD\n", "a\nB\nc\nD\n"),
        ("a\nb\nc\nd\n", "a\nb\nc\nd\ne\n", "A\nb\nc\nd\n", "A\nb\nc\nd\ne\n"),
        ("a\nb\nc\n", "a\nB\nc\n", "a\nX\nc\n", None),
        ("a\nb\nc\n", "a\nB\nc\n", "a\nb\nX\nc\n", None),  # beside each other: nobody knows the order
        ("a\n\nc", "", "a\n\nc", ""),
        ("a\x0cb\nc\n", "a\x0cB\nc\n", "a\x0cb\nc\n", "a\x0cB\nc\n"),
    ],
)
def test_merging_makes_both_changes_or_none(base: str, yours: str, fresh: str, merged: str | None) -> None:
    assert edits.merge(base, yours, fresh) == merged
    assert edits.merge(base, base, fresh) == fresh
    assert edits.merge(base, yours, base) == yours
