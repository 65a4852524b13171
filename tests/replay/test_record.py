"""Making a recording: each line gets a time that the log and the ledger bear out."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.ledger import JobRecord, Ledger
from gpt_tune.workflows import replay, replay_record
from gpt_tune.workflows.replay_record import step_seconds, timed
from tests.cli.conftest import STEP_LINE
from tests.tui.fakes import run

STEPS = [
    STEP_LINE.rstrip("\n").replace(" 1/      10", f"{i:2}/      10").replace("712.3", f"{500 + i}.0")
    for i in range(1, 11)
]
LOG = ["begins", "loads", *STEPS[:4], "a word between", *STEPS[4:], "done"]


def test_steps_lie_apart_as_long_as_they_took() -> None:
    lines, seconds = timed([LOG], 5.0, 60.0)
    assert seconds == 65.0
    assert [line.text for line in lines] == LOG
    at = [line.at for line in lines if "iteration " in line.text]
    gaps = [round(b - a, 3) for a, b in pairwise(at)]
    assert gaps == [0.502, 0.503, 0.504, 0.505, 0.506, 0.507, 0.508, 0.509, 0.51]
    assert lines[0].at > 5.0
    assert lines[-1].at <= 65.0


@pytest.mark.parametrize("ran", [None, 0.0, 1.0, 5.06, 3600.0])
@pytest.mark.parametrize("log", [LOG, LOG[:2], [], STEPS])
def test_times_rise_and_stay_inside_whatever_is_known(log: list[str], ran: float | None) -> None:
    lines, seconds = timed([log, ["other rank"]], 2.0, ran)
    at = [line.at for line in lines]
    assert at == sorted(at)
    assert all(2.0 <= a <= seconds for a in at)
    assert len(lines) == len(log) + 1


def test_a_line_every_ten_steps_counts_ten() -> None:
    apart = [STEP_LINE.replace(" 1/      10", f"{i}/     100").rstrip() for i in (10, 20, 30)]
    assert [round(s, 3) for s in step_seconds(apart).values()] == [0.712, 7.123, 7.123]


def kept(home: Path, **changes: object) -> tuple[Ledger, str]:
    log = home / "job.out"
    log.write_text("\n".join([*LOG, f"saved to {home}/x"]) + "\n")
    ledger = Ledger.open()
    record = run(
        "trial", "COMPLETED", cluster="local", scheduler="local", log_paths=(str(log),), run_dir=str(home),
        submitted_at="2026-01-01T00:00:00Z", started_at="2026-01-01T00:00:10Z", ended_at="2026-01-01T00:01:00Z",
        prediction={"step_seconds": 0.5, "tokens_per_step": 8192}, node_list="n1", exit_code=0, **changes,
    )  # fmt: skip
    ledger.add(replace(record, job_ids=()))
    ledger.put_job(JobRecord(record.run_id, "local-9", 0, record.state, "", record.submitted_at))
    return ledger, record.run_id


def test_any_ended_run_becomes_a_recording(home: Path) -> None:
    _, run_id = kept(home)
    made = replay.find(run_id)
    assert [(s.at, s.state) for s in made.facts.states] == [
        (0.0, "PENDING"),
        (10.0, "RUNNING"),
        (60.0, "COMPLETED"),
    ]
    assert made.facts.prediction is not None
    assert made.facts.prediction.step_time_ms == 500.0
    tape = replay.Tape(made)
    tape.seek(60.0)
    update = replay.watch_of(tape).poll()
    assert update.ended
    assert update.pace.iteration == 10
    assert update.pace.elapsed_seconds == 50.0
    clean = replay_record.without_names(made, Ledger.open().get(run_id))
    assert str(home) not in "".join(line.text for line in clean.lines)


def test_a_run_that_goes_on_or_has_no_log_cannot_be_recorded(home: Path) -> None:
    ledger, run_id = kept(home)
    (home / "job.out").unlink()
    with pytest.raises(UserError, match="are gone"):
        replay.find(run_id)
    ledger.update(run_id, state="RUNNING", phase="submitted")
    with pytest.raises(UserError, match="has not ended"):
        replay.find(run_id)


def test_a_log_alone_plays_without_states(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes("\n".join(LOG).encode() + b"\nlast \xff line without an end")
    made = replay.find(str(log))
    assert made.facts.states == ()
    assert made.lines[-1].text == "last \udcff line without an end"
    tape = replay.Tape(made)
    tape.seek(made.facts.seconds)
    update = replay.watch_of(tape).poll()
    assert update.state == "UNKNOWN"
    assert update.pace.iteration == 10
