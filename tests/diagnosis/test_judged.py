"""Findings that the user calls nothing, or by another name."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.diagnosis import Diagnosis, diagnose
from gpt_tune.diagnosis.types import Judgement, diagnose_json
from gpt_tune.errors import UserError

OOM = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU 3 has a total capacity of 178.00 GiB"
)
LIMIT = "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-11-30T10:00:00 DUE TO TIME LIMIT ***"


def judged(tmp_path: Path, lines: list[str], state: str = "UNKNOWN", *judgements: Judgement) -> Diagnosis:
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + "\n")
    return diagnose([path], state, judgements={j.id: j for j in judgements})


def test_a_dismissed_finding_is_shown_and_alarms_nobody(tmp_path: Path) -> None:
    assert judged(tmp_path, [OOM]).status == "failed"
    got = judged(tmp_path, [OOM], "UNKNOWN", Judgement("F1", "a test of ours"))
    assert got.root_cause is None
    assert not got.alarming
    (finding,) = [f for f in got.findings if f.id == "F1"]
    assert finding.dismissed == "a test of ours"
    assert (finding.severity, finding.action) == ("info", None)  # whoever looks for errors finds none
    assert diagnose_json(got)["findings"][0]["dismissed"] == "a test of ours"


def test_the_next_cause_takes_its_place(tmp_path: Path) -> None:
    both = judged(tmp_path, [OOM, LIMIT])
    assert both.root_cause is not None
    assert both.root_cause.id == "F1"
    got = judged(tmp_path, [OOM, LIMIT], "UNKNOWN", Judgement("F1"))
    assert got.root_cause is not None
    assert got.root_cause.id == "F72"
    assert [f.dismissed for f in got.findings if f.id == "F1"] == [""]


def test_dismissing_does_not_turn_a_failed_job_into_a_good_one(tmp_path: Path) -> None:
    got = judged(tmp_path, [OOM], "FAILED", Judgement("F1"))
    assert got.status == "failed"
    assert got.root_cause is not None
    assert got.root_cause.id == "F218"  # it failed, and nothing else explains it
    silent = judged(tmp_path, [OOM], "FAILED", Judgement("F1"), Judgement("F218"))
    assert silent.status == "failed"
    assert silent.root_cause is None


def test_a_correction_brings_the_other_cure(tmp_path: Path) -> None:
    got = judged(tmp_path, [OOM], "UNKNOWN", Judgement("F1", "somebody else's process", "F4"))
    root = got.root_cause
    assert root is not None
    assert (root.id, root.corrected_from, root.rank, root.line) == ("F4", "F1", 3, 1)
    assert "somebody else's process" in root.text
    assert got.status == "failed"


def test_an_unknown_correction_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="F9999"):
        judged(tmp_path, [OOM], "UNKNOWN", Judgement("F1", "", "F9999"))


def test_judging_what_is_not_there_changes_nothing(tmp_path: Path) -> None:
    assert judged(tmp_path, [OOM], "UNKNOWN", Judgement("F72")) == judged(tmp_path, [OOM])


def test_a_correction_never_shows_blanks(tmp_path: Path) -> None:
    got = judged(tmp_path, [OOM], "UNKNOWN", Judgement("F1", "", "F18"))
    (finding,) = [f for f in got.findings if f.id == "F18"]
    assert finding.text == "(You corrected this from F1.)"
    assert "?" not in finding.text
    assert finding.fix
