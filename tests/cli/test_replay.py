"""`gpt-tune replay` without a screen: the events of a recording in order, at once; and making one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpt_tune.workflows import replay, replay_format
from tests.cli.conftest import STEP_LINE, Run


def test_the_shipped_run_as_events(gpt_tune: Run) -> None:
    done = gpt_tune("replay", "--json")
    assert done.code == 0
    events = [json.loads(line) for line in done.out.splitlines()]
    assert {e["schema"] for e in events} == {"gpt-tune/replay/1"}
    assert [e["state"] for e in events if e["event"] == "state"] == ["RUNNING", "COMPLETED"]
    assert [e["iteration"] for e in events if e["event"] == "step"] == list(range(1, 13))
    assert events[-1]["event"] == "end"
    assert events[-1]["summary"]["median_step_time_ms"] == 910.7
    times = [e["time"] for e in events]
    assert times == sorted(times)
    assert times[-1] == "2026-11-30T08:29:00Z"


def test_as_words_with_the_prediction(gpt_tune: Run) -> None:
    done = gpt_tune("replay", "--speed", "2000")
    assert done.code == 0
    assert "median 910.7 ms, predicted 908.9" in done.out


def test_a_failed_recording_is_a_finding(gpt_tune: Run, tmp_path: Path) -> None:
    facts = replay_format.Facts("x", ("x",), 2.0, (replay_format.StateAt(1.0, "FAILED", "", 1),))
    replay_format.write(replay_format.Recording(facts, ()), tmp_path / "r.jsonl")
    assert gpt_tune("replay", tmp_path / "r.jsonl").code == 1


def test_record_a_log_and_play_it(gpt_tune: Run, tmp_path: Path) -> None:
    log, out = tmp_path / "some.log", tmp_path / "out.jsonl"
    log.write_text(STEP_LINE)
    assert gpt_tune("replay", "--record", log, out, "--strip", "--json").json["lines"] == 1
    again = gpt_tune("replay", "--record", log, out)
    assert again.code == 2
    assert "exists already" in again.err
    played = gpt_tune("replay", out, "--json")
    assert [json.loads(line)["event"] for line in played.out.splitlines()] == ["log", "step", "end"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("replay", "nothing-like-it"), "Unknown recording or run"),
        (("replay", "--speed", "0"), "cannot be played"),
        (("replay", "--strip"), "--strip goes with --record"),
        (("replay", "x", "--record", "a", "b"), "--record goes with"),
        (("replay", "--record", "no-such-run", "b"), "Unknown recording or run"),
        (("replay", ""), ""),
    ],
)
def test_wrong_use_is_one_sentence(gpt_tune: Run, arguments: tuple[str, ...], words: str) -> None:
    done = gpt_tune(*arguments, "--json")
    if not words:  # an empty name is an unset variable, not the shipped one
        assert done.code == 2
    else:
        assert words in done.error["message"]
        assert done.code == 2


def test_the_list(gpt_tune: Run) -> None:
    rows = gpt_tune("replay", "--list", "--json").json["replay"]
    assert [r["name"] for r in rows] == sorted(replay.shipped())
    assert replay.SHIPPED in gpt_tune("replay", "--list").out
