"""Owns testing `validate`: its JSON, and that a fit never saw the model it is judged on."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_tune.errors import UserError
from gpt_tune.workflows import leave_out, leave_out_memory
from gpt_tune.workflows.runs_csv import Run, read
from gpt_tune.workflows.validate import Report, validate
from gpt_tune.workflows.validate_report import report_csv, report_json

DATA = Path(__file__).resolve().parents[1] / "data" / "runs"
PUBLISHED, OWN = DATA / "published.csv", DATA / "h200.csv"
FIGURES = {"rows", "mape", "median", "worst", "covered_90"}


@pytest.fixture(scope="module")
def plain() -> Report:
    return validate(PUBLISHED)


@pytest.fixture(scope="module")
def fitted() -> Report:
    return validate(OWN, OWN)


def changed(
    path: Path, target: Path, change: Callable[[dict[str, str]], dict[str, str]], only: str = ""
) -> Path:
    """A copy of a runs file with every row changed; only rows of series that start with `only`."""
    with path.open(newline="") as handle:
        rows = [change(dict(row)) for row in csv.DictReader(handle) if row["series"].startswith(only)]
    with target.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return target


def test_the_json_has_the_shape_of_the_contract(plain: Report) -> None:
    found = report_json(plain)
    assert found["schema"] == "gpt-tune/validate/1"
    assert {"rows", "skipped", "fitted_rows", "memory", "time", "oom", "per_series"} <= set(found)
    assert FIGURES | {"by_kind"} <= set(found["memory"])
    assert set(found["time"]) == FIGURES
    assert {"rows", "caught", "false_alarms"} <= set(found["oom"])
    assert found["fitted_rows"] == 0
    assert found["rows"] == 52
    json.loads(json.dumps(found, allow_nan=False))


def test_kinds_are_compared_with_their_own_and_unknown_stays_apart(plain: Report) -> None:
    found = report_json(plain)["memory"]
    kinds = found["by_kind"]
    assert found["rows"] == sum(kinds[k]["rows"] for k in ("allocated", "device"))
    assert kinds["unknown"]["rows"] > 0
    simumax = next(c for c in plain.checked if c.run.series == "simumax-b200")
    assert set(simumax.memory) == {"allocated"}


def test_further_columns_of_our_own_runs_are_compared_too(fitted: Report) -> None:
    kinds = report_json(fitted)["memory"]["by_kind"]
    assert kinds["allocated"]["rows"] == kinds["reserved"]["rows"] == kinds["device"]["rows"] == 13
    assert kinds["allocated"]["mape"] < 0.03


def test_an_oom_row_is_called_and_no_figure_of_it_is_judged(plain: Report) -> None:
    oom = report_json(plain)["oom"]
    assert oom["rows"] == 1
    assert oom["caught"] <= 1
    assert oom["fitting_rows"] == 51


def test_shipped_calibrations_reach_the_goals_on_these_rows(plain: Report) -> None:
    groups = {g["group"]: g["time"] for g in report_json(plain)["per_group"]}
    assert groups["jean-zay"]["mape"] < 0.12
    assert groups["vtrain-multi"]["median"] < 0.07
    assert groups["vtrain-single"]["median"] < 0.08
    assert groups["h100/megatron-lm@nemo"]["mape"] < 0.12


def test_busy_runs_are_also_reported_alone(fitted: Report) -> None:
    found = report_json(fitted)
    assert found["time_busy"]["rows"] < found["time"]["rows"] == 13
    assert found["time_busy"]["mape"] < 0.07
    assert found["fitted_rows"] == 13


def test_series_and_groups_add_up(plain: Report) -> None:
    found = report_json(plain)
    for name in ("per_series", "per_group"):
        assert sum(part["rows"] for part in found[name]) == 52
        assert sum(part["time"]["rows"] for part in found[name]) == found["time"]["rows"]


def test_a_fit_never_sees_the_model_it_is_judged_on(tmp_path: Path) -> None:
    """The left-out model's own figures may be anything: its predictions stay what they are."""

    def spoil(row: dict[str, str]) -> dict[str, str]:
        if row["series"] == "vtrain-multi-h8192":
            row["step_seconds"] = str(float(row["step_seconds"]) * 10)
        return row

    mine = changed(PUBLISHED, tmp_path / "mine.csv", lambda row: row, only="vtrain-multi")
    honest = _seconds(validate(mine, mine))
    spoilt = _seconds(validate(mine, changed(mine, tmp_path / "spoilt.csv", spoil)))
    left_out = [name for name in honest if name.startswith("vtrain-multi-h8192")]
    others = [name for name in honest if name.startswith("vtrain-multi-h3072")]
    assert left_out
    assert all(honest[name] == spoilt[name] for name in left_out)
    assert any(honest[name] != spoilt[name] for name in others)


def test_where_only_the_depth_differs_the_depth_is_left_out() -> None:
    runs = [run for run in read(PUBLISHED).runs if leave_out.group_of(run) == "vtrain-single"]
    held = leave_out.predict_held_out(runs, runs, "vtrain-single")
    depths = [run.model.layers for run in runs]
    for run, one in zip(runs, held):
        assert one.fitted_rows == len(runs) - depths.count(run.model.layers)


def test_a_model_alone_in_its_group_is_predicted_without_a_fit() -> None:
    runs = [run for run in read(PUBLISHED).runs if run.series == "simumax-b200"]
    held = leave_out.predict_held_out(runs, runs, leave_out.group_of(runs[0]))
    assert {one.fitted_rows for one in held} == {0}
    assert all(one.half_width >= 0.3 for one in held)


def test_the_memory_constant_comes_from_other_layouts(tmp_path: Path) -> None:
    runs = [run for run in read(OWN).runs if run.memory_gib]
    group = leave_out.group_of(runs[0])

    def device(known: list[Run]) -> list[float]:
        return [e.device_gib for e in leave_out_memory.estimates(runs, known, group)]

    def shifted(run: Run, by: float) -> Run:
        return replace(run, memory_gib=(run.memory_gib or 0) + by)

    before = device(runs)
    lifted = device([shifted(run, 5.0) for run in runs])
    assert [b - a for a, b in zip(before, lifted)] == pytest.approx([5.0] * len(runs), abs=1e-6)
    alone = device([shifted(run, 50.0) if run is runs[0] else run for run in runs])
    assert alone[0] == before[0]


def test_intervals_are_wide_enough_for_new_runs_and_no_wider() -> None:
    errors = [0.01 * i for i in range(1, 101)]
    assert leave_out.width_90(np.array(errors)) == pytest.approx(0.91)
    assert leave_out.width_90(np.array([0.01, 0.02])) == leave_out.WIDTH_OF_FEW
    assert leave_out.width_90(np.zeros(0)) > 0.2


def test_the_csv_has_one_line_a_run(plain: Report) -> None:
    rows = list(csv.DictReader(report_csv(plain).splitlines()))
    assert len(rows) == 52
    for row in rows:
        if row["step_seconds"]:
            low, high = float(row["low_seconds"]), float(row["high_seconds"])
            assert low < float(row["predicted_seconds"]) < high


def test_rows_that_could_not_be_used_are_listed(tmp_path: Path) -> None:
    def spoil(row: dict[str, str]) -> dict[str, str]:
        return {**row, "layers": "0"} if row["id"] == "simumax-b200-001" else row

    report = validate(changed(PUBLISHED, tmp_path / "x.csv", spoil))
    found = report_json(report)
    assert found["rows"] == 52
    assert found["skipped"] == [
        {"id": "simumax-b200-001", "reason": "layers is 0, not a whole number above 0."}
    ]


def test_a_fit_file_without_figures_is_refused(tmp_path: Path) -> None:
    def empty(row: dict[str, str]) -> dict[str, str]:
        return {**row, "step_seconds": "", "memory_gb": ""}

    with pytest.raises(UserError, match="no run with a step time or memory"):
        validate(OWN, changed(OWN, tmp_path / "x.csv", empty))


def test_a_file_without_rows_gives_an_empty_report(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(OWN.read_text().splitlines()[0] + "\n")
    found = report_json(validate(path))
    assert found["rows"] == 0
    assert found["time"]["mape"] is None
    assert found["per_series"] == []


def test_a_fit_on_one_file_is_reported_on_another(tmp_path: Path) -> None:
    """New models of a known cluster are predicted from all its runs."""

    def widened(row: dict[str, str]) -> dict[str, Any]:
        return {
            **row,
            "hidden": "2560",
            "heads": "20",
            "kv_heads": "20",
            "ffn": "10240",
            "series": "h200-2.7B",
        }

    other = changed(OWN, tmp_path / "other.csv", widened)
    report = validate(other, OWN)
    assert {c.fitted_rows for c in report.checked} == {13}
    assert all(c.time is not None and math.isfinite(c.time.predicted) for c in report.checked)


def _seconds(report: Report) -> dict[str, float]:
    return {c.run.id: c.time.predicted for c in report.checked if c.time}
