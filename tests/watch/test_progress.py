"""How far runs have come that nobody watches."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.profiles import sites
from gpt_tune.schedulers.base import State
from gpt_tune.workflows import progress

PLAIN = RunRecord(
    "r1", "t", "local", "local", "n", "smoke", "/r", "/r/j", "2026-11-30T07:15:33Z", job_ids=("7",)
)


def step(number: int) -> str:
    return f" [2026-11-30 07:15:40] iteration {number:8d}/     900 | consumed samples: 8 |\n"


def noted(ledger: Ledger) -> int | None:
    (record,) = progress.note(ledger, ledger.runs())
    assert ledger.get("r1") == record
    return record.last_iteration


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED", "FAILED", "CANCELLED"])
def test_the_end_of_a_log_says_how_far_it_came(home: Path, tmp_path: Path, state: State) -> None:
    log = tmp_path / "job.out"
    with Ledger.open() as ledger:
        ledger.add(replace(PLAIN, state=state, log_paths=(str(log),)))
        assert noted(ledger) is None  # no log yet
        log.write_text("nothing of interest\n")
        assert noted(ledger) is None
        log.write_text(step(1) + "x" * (1 << 20) + "\n" + step(41) + step(42) + "saved iteration 40\n")
        assert noted(ledger) == 42
        with log.open("a") as file:
            file.write("x" * (2 * progress.TAIL_BYTES))
        assert noted(ledger) == 42, "only noise since"
        with log.open("a") as file:
            file.write("\n" + step(50))
        assert noted(ledger) == 50


def test_a_log_that_did_not_change_is_not_read_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "job.out"
    log.write_text(step(3))
    with Ledger.open() as ledger:
        ledger.add(replace(PLAIN, state="RUNNING", log_paths=(str(log),)))
        assert noted(ledger) == 3
        before = log.stat()
        log.write_text(step(4))
        os.utime(log, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert noted(ledger) == 3
        os.utime(log)
        assert noted(ledger) == 4


def test_a_waiting_run_has_no_log_to_read(home: Path, tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(step(3))
    with Ledger.open() as ledger:
        ledger.add(replace(PLAIN, state="PENDING", log_paths=(str(tmp_path / "job.out"),)))
        assert noted(ledger) is None


def test_a_site_that_cannot_be_read_hides_no_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(cluster: str) -> None:
        raise UserError("The site is no TOML.", "")

    monkeypatch.setattr(sites, "load", broken)
    (tmp_path / "job.out").write_text(step(3))
    with Ledger.open() as ledger:
        ledger.add(replace(PLAIN, state="RUNNING", log_paths=(str(tmp_path / "job.out"),)))
        assert noted(ledger) is None
