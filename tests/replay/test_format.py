"""The file of a recording: what is written is read back, and what is no recording is said with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_tune.errors import UserError
from gpt_tune.workflows import replay, replay_format
from gpt_tune.workflows.replay_format import Facts, Recording, StateAt, TimedLine
from gpt_tune.workflows.watching.pace import Prediction

HEAD: dict[str, Any] = {"schema": replay_format.SCHEMA, "name": "a", "logs": ["a.log"], "seconds": 10.0}

# What a line of a log may hold: anything but its own end; bytes that are no UTF-8 are lone surrogates.
texts = st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"").decode("utf-8", "surrogateescape"))


def recorded(lines: list[tuple[float, int, str]], **changes: Any) -> Recording:
    facts = Facts(**{"name": "a", "logs": ("a", "b"), "seconds": 100.0, **changes})
    return Recording(facts, tuple(TimedLine(*line) for line in lines))


@given(
    lines=st.lists(st.tuples(st.floats(0, 99), st.integers(0, 1), texts), max_size=20).map(
        lambda found: sorted((round(at, 3), log, text) for at, log, text in found)
    )
)
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_back(lines: list[tuple[float, int, str]]) -> None:
    made = recorded(lines, states=(StateAt(1.0, "RUNNING"),), prediction=Prediction(step_time_ms=900.0))
    rows = iter("".join(replay_format.rows_of(made)).splitlines(keepends=True))
    assert replay_format.parse(rows, "x") == made


def test_a_folder_is_as_good_as_its_file_and_only_the_owner_reads_it(tmp_path: Path) -> None:
    made = recorded([(1.0, 0, "x")])
    folder = tmp_path / "kept"
    folder.mkdir()
    path = replay_format.write(made, folder)
    assert path == folder / replay_format.FILE
    assert path.stat().st_mode & 0o077 == 0
    assert replay_format.read(folder) == replay_format.read(path) == made
    assert replay_format.is_recording(folder)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([""], "Line 1 of f is not valid JSON"),
        (["{}"], "is no recording"),
        (["[1]"], "is no recording"),
        ([json.dumps({**HEAD, "schema": "gpt-tune/recording/2"})], "of another version"),
        ([json.dumps({**HEAD, "secnods": 3})], "secnods"),
        ([json.dumps({"schema": HEAD["schema"], "name": "a", "logs": ["a"]})], "lacks seconds"),
        ([json.dumps({**HEAD, "seconds": -1})], "says it lasts -1 s"),
        ([json.dumps({**HEAD, "logs": []})], "names no log"),
        ([json.dumps({**HEAD, "states": [{"at": 1, "state": "RUNING"}]})], "Did you mean RUNNING?"),
        ([json.dumps({**HEAD, "states": [{"at": 11, "state": "RUNNING"}]})], "out of order"),
        ([json.dumps(HEAD), "nonsense"], "Line 2 of f is not valid JSON"),
        ([json.dumps(HEAD), '[1, 0, "a"]', "[1, 0]"], "Line 3 of f is no line"),
        ([json.dumps(HEAD), '[1, true, "a"]'], "is no line"),
        ([json.dumps(HEAD), '[2, 0, "a"]', '[1, 0, "b"]'], "Line 3 of f is at 1 s"),
        ([json.dumps(HEAD), '[11, 0, "a"]'], "Take 0 to 10"),
        ([json.dumps(HEAD), '[NaN, 0, "a"]'], "out of order"),
        ([json.dumps(HEAD), '[1, 1, "a"]'], "of log 1"),
        ([json.dumps(HEAD), '[1, -1, "a"]'], "of log -1"),
        (["[" * 100_000], "not valid JSON"),
    ],
)
def test_what_is_no_recording_is_one_sentence(rows: list[str], words: str) -> None:
    with pytest.raises(UserError, match=r".") as refused:
        replay_format.parse(iter(rows), "f")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_private_words_go_from_the_facts_and_every_line() -> None:
    made = recorded(
        [(1.0, 0, "on gpu-17: /home/ann/run/x by ann")], node_list="gpu-17", logs=("ann.out", "b")
    )
    clean = replay_format.stripped(
        made, [("ann", "user"), ("/home/ann/run", "/run"), ("gpu-17", "node-1"), ("", "x")]
    )
    assert clean.lines[0].text == "on node-1: /run/x by user"
    assert (clean.facts.node_list, clean.facts.logs) == ("node-1", ("user.out", "b"))


def test_every_shipped_recording_is_small_private_and_whole() -> None:
    found = replay.shipped()
    assert replay.SHIPPED in found
    for path in found.values():
        assert path.stat().st_size < 200_000
        recording = replay_format.read(path)
        assert recording.facts.about
        text = path.read_text()
        assert not [word for word in ("/work", "/root", "/tmp/") if word in text]
