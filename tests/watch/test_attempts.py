"""GPU-hours of a requeued job: what the attempts before used counts too, or it is said that it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune.logs.summary import Summary
from gpt_tune.schedulers.base import JobStatus
from gpt_tune.workflows.watching.attempts import earlier_of, earlier_seconds, starts_of
from gpt_tune.workflows.watching.pace import Pace, Recent, epoch, pace_of
from tests.jobs.test_find import PLAIN

FIRST, AGAIN, SECOND, END = (f"2026-11-30T12:{t}Z" for t in ("00:00", "00:40", "02:40", "03:14"))


def at(*stamps: str) -> list[float]:
    return [t for s in stamps if (t := epoch(s)) is not None]


@pytest.mark.parametrize(
    ("starts", "submitted", "expected"),
    [
        ([FIRST, SECOND], AGAIN, 40.0),
        ([FIRST], AGAIN, 40.0),  # waiting again, or its script has not begun yet
        ([FIRST], FIRST, 0.0),
        ([SECOND], FIRST, 0.0),
        ([], FIRST, 0.0),
        ([], None, 0.0),
        ([FIRST], None, 0.0),
        ([FIRST, SECOND], None, None),
        ([FIRST, AGAIN, END], SECOND, None),  # when the first of the two ended nobody knows
    ],
)
def test_how_long_it_ran_before(starts: list[str], submitted: str | None, expected: float | None) -> None:
    assert earlier_of(at(*starts), submitted) == expected


def paced(earlier: float | None, **more: str | None) -> Pace:
    values: dict[str, str | None] = {"started_at": SECOND, "ended_at": END, **more}
    status = JobStatus("7", "x", "COMPLETED", gpus=64, earlier_seconds=earlier, **values)  # type: ignore[arg-type]
    return pace_of(
        Recent(None, None, None, None, None, None), Summary(), status, None, None, None, at(END)[0]
    )


def test_all_attempts_count() -> None:
    assert paced(40.0).gpu_hours == pytest.approx(64 * 74 / 3600)
    assert paced(40.0).gpu_hours_note == ""
    assert paced(0.0).gpu_hours == pytest.approx(64 * 34 / 3600)
    assert paced(40.0, started_at=None, ended_at=None).gpu_hours == pytest.approx(64 * 40 / 3600)


def test_of_what_is_not_known_the_last_attempt_is_said() -> None:
    assert paced(None).gpu_hours == pytest.approx(64 * 34 / 3600)
    assert paced(None).gpu_hours_note == " in the last attempt"


def test_the_run_folder_says_when_it_started(tmp_path: Path) -> None:
    record = replace(
        PLAIN, run_dir=str(tmp_path), job_ids=("7",), submitted_at=AGAIN, started_at=SECOND, ended_at=END
    )
    assert earlier_seconds(record) == 0.0
    other = f'{{"token":"t","job_id":"6","time":"{FIRST}"}}'
    ours = [f'{{"token":"t","job_id":"7","time":"{stamp}"}}' for stamp in (FIRST, SECOND)]
    (tmp_path / "started").write_text(
        "\n".join([other, "", "[]", '{"job_id":"7"', '{"job_id":"7"}', *ours]) + "\n"
    )
    assert starts_of(record) == at(FIRST, SECOND)
    assert earlier_seconds(record) == 40.0
    assert earlier_seconds(replace(record, job_ids=("6", "7"))) is None
