"""What `results` counts: iterations as `jobs` does, not the lines of a log; and of what it gives no ratio."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.ledger import RunRecord
from gpt_tune.logs.parse import parse_files
from gpt_tune.workflows import results
from tests.tui.fakes import run

LINE = (
    " iteration {n:8}/    1060 | consumed samples: {n} | elapsed time per iteration (ms): {ms} |"
    " learning rate: 1.0E-04 | global batch size: 8 | lm loss: 2.0E+00 |\n"
)


def logged(folder: Path, iterations: range, ms: float = 100.0) -> RunRecord:
    log = folder / "a.log"
    log.write_text("".join(LINE.format(n=n, ms=ms) for n in iterations), encoding="utf-8")
    return run("night", "COMPLETED", run_id=f"r-{len(iterations)}", token="a", log_paths=(str(log),))


@pytest.mark.parametrize("iterations", [range(1, 27), range(10, 1061, 10), range(4, 193, 4)])
def test_steps_are_iterations(tmp_path: Path, iterations: range) -> None:
    record = logged(tmp_path, iterations)
    assert results.row(record)["steps"] == iterations[-1]
    assert parse_files([str(tmp_path / "a.log")]).summary.steps == len(iterations)


def test_errors_have_no_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = logged(tmp_path, range(1, 20))
    base = results.row(record)
    rows = iter(
        [
            {**base, "step_time_error": -0.34, "last_loss": 2.0},
            {**base, "step_time_error": -1.4, "last_loss": 3.0},
        ]
    )
    monkeypatch.setattr(results, "row", lambda _: next(rows))
    found = {d["key"]: d for d in results.compare(record, record)}
    assert found["step_time_error"]["ratios"] == [None, None]
    assert found["last_loss"]["ratio"] == 1.5
