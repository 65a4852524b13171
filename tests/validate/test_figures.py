"""Owns testing how the accuracy benchmark states a figure, and its sections."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import accuracy
from benchmarks.figures import Figure, bootstrap


def test_the_interval_holds_the_figure_and_narrows_with_rows() -> None:
    random = np.random.default_rng(1)
    few, many = random.exponential(0.05, 20), random.exponential(0.05, 2000)
    for errors in (few, many):
        low, high = bootstrap(errors)
        assert low <= float(np.mean(errors)) <= high
    assert bootstrap(many)[1] - bootstrap(many)[0] < bootstrap(few)[1] - bootstrap(few)[0]


@pytest.mark.parametrize(("goal", "verdict"), [(0.05, "met"), (0.04, "MISSED"), (None, "")])
def test_a_line_says_rows_and_whether_the_goal_is_met(goal: float | None, verdict: str) -> None:
    line = Figure("words", np.array([0.04, 0.05, 0.06]), goal).line()
    assert line.startswith("words")
    assert " 3 " in line
    assert "5.00%" in line
    assert line.endswith(verdict)


def test_no_rows_are_no_figure() -> None:
    assert Figure("words", np.array([]), 0.1).line().split() == ["words", "0"]


def test_the_worst_may_be_what_is_judged() -> None:
    assert "MISSED" in Figure("worst", np.array([0.0, 0.2]), 0.1, np.max).line()


def test_without_measured_runs_it_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert accuracy.main(["--truth", str(tmp_path)]) == 0
    assert "skipped" in capsys.readouterr().out


def test_an_unknown_section_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(__file__).resolve().parents[1] / "data" / "runs"
    (tmp_path / "h200").mkdir()
    (tmp_path / "layouts.csv").write_bytes((data / "published.csv").read_bytes())
    (tmp_path / "h200" / "runs.csv").write_bytes((data / "h200.csv").read_bytes())
    with pytest.raises(SystemExit):
        accuracy.main(["--truth", str(tmp_path), "--only", "vtrain-multy"])
    assert "vtrain-multy is no section" in capsys.readouterr().err
    assert accuracy.main(["--truth", str(tmp_path), "--only", "memory", "oom"]) == 0
    assert "H200 allocated" in capsys.readouterr().out
