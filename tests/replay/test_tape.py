"""Playing: the position follows the clock, the watch sees the log up to there and nothing beyond."""

from __future__ import annotations

import pytest

from gpt_tune.errors import UserError
from gpt_tune.logs.parse import result_of
from gpt_tune.logs.parser import LogParser
from gpt_tune.workflows import replay, replay_format
from gpt_tune.workflows.replay import SPEEDS, Tape, TapeReader, watch_of
from gpt_tune.workflows.replay_format import Facts, Recording, StateAt, TimedLine


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def tape(speed: float = 1.0) -> tuple[Tape, Clock]:
    clock = Clock()
    return Tape(replay.find(), speed, clock), clock


def test_position_follows_speed_pause_and_seek() -> None:
    played, clock = tape(2.0)
    assert played.position == 0.0
    clock.now += 5
    assert played.position == 10.0
    played.pause()
    clock.now += 100
    assert (played.position, played.paused) == (10.0, True)
    played.turn(1)
    assert played.speed == 5.0
    assert played.position == 10.0
    played.pause()
    clock.now += 2
    assert played.position == 20.0
    played.turn(-1)
    clock.now += 1
    assert played.position == 22.0
    played.seek(1e9)
    assert (played.position, played.over) == (played.seconds, True)
    played.seek(-5)
    assert (played.position, played.over) == (0.0, False)


def test_speeds_have_ends() -> None:
    played, _ = tape(SPEEDS[-1])
    played.turn(1)
    assert played.speed == SPEEDS[-1]
    played, _ = tape(SPEEDS[0])
    played.turn(-1)
    assert played.speed == SPEEDS[0]
    between, _ = tape(3.0)
    between.turn(1)
    assert between.speed == 5.0


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_no_such_speed(speed: float) -> None:
    with pytest.raises(UserError, match="cannot be played"):
        tape(speed)


def test_what_the_watch_says_at_the_end_is_what_the_log_says() -> None:
    played, _ = tape()
    played.pause(True)
    watch = watch_of(played)
    seen = []
    for moment in played.moments():
        played.seek(moment)
        update = watch.poll()
        seen += [line.text for line in update.lines]
        assert all(line.at <= moment for line in played.recording.lines[: len(seen)])
    assert update.ended
    assert update.state == "COMPLETED"
    assert len(seen) == len(played.recording.lines)
    parser = LogParser()
    parser.feed_block("\n".join(line.text for line in played.recording.lines).encode() + b"\n")
    whole = result_of(parser)
    assert update.summary.median_step_time_ms == whole.summary.median_step_time_ms == 910.7
    assert watch.prediction is not None
    assert watch.prediction.step_time_ms == 908.9
    assert update.pace.mfu is not None
    assert update.pace.elapsed_seconds == 54.0


@pytest.mark.parametrize("share", [0.0, 0.3, 0.61, 0.7, 0.99, 1.0])
def test_opened_anywhere_it_shows_the_past_up_to_there(share: float) -> None:
    played, _ = tape()
    played.pause(True)
    played.seek(share * played.seconds)
    watch = watch_of(played)
    update = watch.poll()
    expected = [line for line in played.recording.lines if line.at <= played.position]
    assert len(update.lines) == len(expected)
    assert update.ended == (share == 1.0)


def test_states_come_in_time_and_several_logs_stay_apart() -> None:
    facts = Facts(
        "two", ("a.out", "a.err"), 10.0,
        (StateAt(0.0, "PENDING", "Resources"), StateAt(4.0, "RUNNING"), StateAt(9.0, "FAILED", "x", 3)),
        began="2026-01-01T00:00:00Z",
    )  # fmt: skip
    lines = (TimedLine(5.0, 0, "out"), TimedLine(6.0, 1, "err \udc80"), TimedLine(7.0, 0, "more"))
    played = Tape(Recording(facts, lines), clock=Clock())
    reader = TapeReader(played)
    assert (played.status().state, played.status().reason) == ("PENDING", "Resources")
    assert played.status().started_at is None
    assert reader.stat("a.out") is None
    played.seek(6.0)
    assert played.status().started_at == "2026-01-01T00:00:04Z"
    assert reader.read("a.out", 0, 100) == b"out\n"
    assert reader.read("a.err", 0, 100) == b"err \x80\n"
    assert reader.read("a.out", 2, 1) == b"t"
    played.seek(10.0)
    assert (played.status().state, played.status().exit_code) == ("FAILED", 3)
    assert reader.read("a.out", 4, 100) == b"more\n"
    assert replay.record_of(played).active is False


def test_very_many_lines_are_not_as_many_moments() -> None:
    lines = tuple(TimedLine(i / 1000, 0, "x") for i in range(20_000))
    played = Tape(Recording(Facts("n", ("a",), 20.0, (StateAt(3.0005, "RUNNING"),)), lines))
    moments = played.moments()
    assert len(moments) < 6000
    assert 3.0005 in moments
    assert moments == sorted(moments)
    assert (moments[0], moments[-1]) == (0.0, 20.0)


def test_a_name_that_is_nothing_names_the_nearest(home: object) -> None:
    with pytest.raises(UserError, match=r"h200-gpt-1\.3b"):
        replay.find("h200-gpt-13b")
    with pytest.raises(UserError, match="no recording"):
        replay.find("no/such/file.jsonl")
    with pytest.raises(UserError, match="No name given"):
        replay.find("  ")
    assert replay.find(replay.SHIPPED) == replay_format.read(replay.shipped()[replay.SHIPPED])
