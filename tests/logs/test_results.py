"""Summary, JSON, CSV and series of a parse."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_tune.logs.parse import STEP_KEYS, LogParser, parse_csv, parse_files, parse_json, result_of
from gpt_tune.logs.series import reduce, smooth, window
from gpt_tune.logs.summary import warmup_count
from tests.logs.test_table import line

H200 = Path(__file__).resolve().parent.parent / "data" / "logs" / "h200-pp2.log"


@pytest.mark.parametrize(("steps", "warmup"), [(0, 0), (1, 0), (2, 1), (9, 4), (10, 5), (1000, 5)])
def test_warm_up(steps: int, warmup: int) -> None:
    assert warmup_count(steps) == warmup


def test_warm_up_of_each_run() -> None:
    parser = LogParser()
    parser.feed([line(i, 1000.0 if i <= 5 else 100.0 + i) for i in range(1, 21)])
    parser.feed([line(i, 900.0 if i <= 20 else 200.0 + i) for i in range(16, 31)])
    result = result_of(parser)
    times = [s.step_time_ms for s in result.steps() if s.step_time_ms is not None and s.step_time_ms < 500]
    assert result.summary.steps == 30
    assert result.summary.warmup_steps == 10
    assert result.summary.median_step_time_ms == statistics.median(times)
    assert result.summary.mean_step_time_ms == pytest.approx(statistics.mean(times))
    assert result.summary.stdev_step_time_ms == pytest.approx(statistics.stdev(times))


def test_json_is_the_contract() -> None:
    result = parse_files([H200])
    data = json.loads(json.dumps(parse_json(result), allow_nan=False))
    assert data["schema"] == "gpt-tune/parse/1"
    assert data["trainer"] == "megatron-deepspeed"
    assert data["runs"] == [{"first": 1, "last": 10, "resumed_from": None}]
    assert [tuple(step) for step in data["steps"]] == [STEP_KEYS] * 10
    assert {m["rank"] for m in data["memory"]} == {0, 1}
    assert data["summary"]["steps"] == 10
    assert data["summary"]["median_step_time_ms"] == 1098.7
    # 252 model TFLOPS against the trainer's 270 that count attention in full.
    assert 240 < data["summary"]["median_model_tflops"] < 260
    assert data["steps"][0]["logged_tflops_kind"] == "hardware"


def test_nan_is_null_in_json_and_csv() -> None:
    parser = LogParser()
    parser.feed(
        [line(1).replace(" lm loss: 5.000000E+00 |", "").replace("grad norm: 1.000", "grad norm: inf")]
    )
    data = parse_json(result_of(parser))
    assert (data["steps"][0]["loss"], data["steps"][0]["grad_norm"]) == (None, None)
    (row,) = csv.DictReader(io.StringIO(parse_csv(result_of(parser))))
    assert (row["iteration"], row["loss"], row["step_time_ms"]) == ("1", "", "100.0")


def test_an_empty_log_is_an_empty_result(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    data = parse_json(parse_files([path]))
    assert (data["trainer"], data["runs"], data["steps"], data["memory"]) == (None, [], [], [])
    assert data["summary"]["median_step_time_ms"] is None


def test_reducing_keeps_spikes() -> None:
    x = np.arange(100_000)
    y = np.sin(x / 1000)
    y[54_321] = 50.0
    y[54_322] = -50.0
    series = reduce(x, y, 120)
    assert len(series) <= 120
    assert series.high.max() == 50.0
    assert series.low.min() == -50.0
    px, py = series.points()
    assert len(px) <= 240
    assert py.max() == 50.0
    assert (np.diff(px) >= 0).all()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(allow_nan=True, allow_infinity=True)), max_size=80),
    st.integers(1, 40),
    st.booleans(),
)
def test_reduced_series_hold_the_extremes(
    points: list[tuple[float, float]], width: int, logarithmic: bool
) -> None:
    series = reduce([p[0] for p in points], [p[1] for p in points], width, logarithmic)
    drawable = [y for _, y in points if math.isfinite(y) and (y > 0 or not logarithmic)]
    assert len(series) <= max(width, 0) or len(series) == len(drawable) <= width
    if drawable:
        assert series.low.min() == min(drawable)
        assert series.high.max() == max(drawable)
        assert (np.diff(series.x) >= 0).all()
    else:
        assert len(series) == 0


def test_smoothing_leaves_gaps_out() -> None:
    assert smooth([1.0, math.nan, 3.0], 3).tolist() == [1.0, 2.0, 3.0]
    assert smooth([1.0, 2.0, 6.0], 1).tolist() == [1.0, 2.0, 6.0]
    assert math.isnan(smooth([math.nan, math.nan], 3)[0])


def test_zoom() -> None:
    x, y = window([1, 2, 3, 4], [10, 20, 30, 40], 2, 3)
    assert (x.tolist(), y.tolist()) == ([2.0, 3.0], [20.0, 30.0])
