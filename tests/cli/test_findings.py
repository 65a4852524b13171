"""`gpt-tune findings`: what was found of a run, and the user's word on it, kept with the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.ledger import KeptFinding, Ledger
from gpt_tune.workflows.records import watch_of
from tests.cli.conftest import STEP_LINE, Run
from tests.cli.test_commands import OOM


@pytest.fixture
def run_id(gpt_tune: Run) -> str:
    """An ended run whose log holds an out-of-memory error."""
    identity = str(gpt_tune("submit", "smoke", "--set", "smoke.steps=2", "--json").json["run_id"])
    assert gpt_tune("watch", identity, "--json").code == 0
    with Ledger.open() as ledger:
        record = ledger.get(identity)
        log = Path(record.run_dir) / "oom.log"
        log.write_text(STEP_LINE + OOM)
        ledger.update(identity, log_paths=(str(log),), state="FAILED", exit_code=1)
    return identity


def test_dismiss_and_restore(gpt_tune: Run, run_id: str) -> None:
    told = gpt_tune("findings", run_id, "--json")
    assert (told.code, told.json["status"], told.json["root_cause"]["id"]) == (1, "failed", "F1")
    done = gpt_tune(
        "findings", run_id, "--dismiss", "F1", "--reason", "a test \x1b[31mof ours", "--json"
    ).json
    assert done["root_cause"]["id"] == "F218"
    (first,) = [f for f in done["findings"] if f["id"] == "F1"]
    assert first["dismissed"] == "a test �[31mof ours"
    assert first["judgement"] == {"why": first["dismissed"], "to": None}
    # Whoever asks about the run gets the same answer.
    assert gpt_tune("diagnose", run_id, "--json").json["root_cause"]["id"] == "F218"
    assert "dismissed (a test" in gpt_tune("findings", run_id).out
    with Ledger.open() as ledger:
        update = watch_of(ledger.get(run_id)).poll()
    assert [f.dismissed is None for f in update.diagnosis.findings if f.id == "F1"] == [False]
    assert "F1" not in [f.id for f in update.new_findings]
    back = gpt_tune("findings", run_id, "--restore", "F1", "--json").json
    assert back["root_cause"]["id"] == "F1"


def test_correct(gpt_tune: Run, run_id: str) -> None:
    done = gpt_tune("findings", run_id, "--correct", "F1=F4", "--json").json
    assert (done["root_cause"]["id"], done["root_cause"]["corrected_from"]) == ("F4", "F1")
    again = gpt_tune("findings", run_id, "--correct", "F1=F8", "--json").json
    assert again["root_cause"]["id"] == "F8"
    # The cure is the corrected cause's: more host memory, not less on the GPU.
    assert "--mem=0" in gpt_tune("resubmit", run_id, "--with-fix", "--json").error["hint"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--dismiss", "F72"], "F72"),
        (["--correct", "F1"], "by what"),
        (["--correct", "F1=F1"], "already"),
        (["--correct", "F1=F9999"], "F9999"),
        (["--restore", "F1"], "neither"),
        (["--reason", "because"], "--dismiss"),
        (["--dismiss", "F1", "--reason", "x" * 600], "600"),
    ],
)
def test_wrong_use_is_refused_and_changes_nothing(
    gpt_tune: Run, run_id: str, options: list[str], words: str
) -> None:
    done = gpt_tune("findings", run_id, *options, "--json")
    assert done.code == 2
    assert words in done.error["message"] + done.error["hint"]
    assert Ledger.open().judgements(run_id) == []


def test_what_only_a_monitor_saw_can_be_dismissed(gpt_tune: Run, run_id: str) -> None:
    with Ledger.open() as ledger:
        ledger.put_findings(
            [KeptFinding(run_id, "F220", "warning", "Steps take longer.", found_at="2026-11-30T10:00:00Z")]
        )
    done = gpt_tune("findings", run_id, "--dismiss", "F220", "--json").json
    (old,) = [f for f in done["findings"] if f["id"] == "F220"]
    assert (old["now"], old["dismissed"], old["found_at"]) == (False, "", "2026-11-30T10:00:00Z")
