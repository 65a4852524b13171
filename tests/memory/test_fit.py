"""Tests fitting the one constant of a cluster."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpt_tune import memory
from gpt_tune.calibration import Calibration
from gpt_tune.errors import UserError
from gpt_tune.memory.constants import CONSTANTS, value
from gpt_tune.memory.fit import FEW_RUNS, error_of, fit_cluster
from gpt_tune.memory.types import MemoryEstimate
from gpt_tune.memory.uncertainty import DEFAULT_ERROR, SMALLEST_ERROR, interval, spread, surprise_of
from gpt_tune.workflows import leave_out_memory
from gpt_tune.workflows.runs_csv import Run, read

DATA = Path(__file__).parents[1] / "data" / "memory" / "h200_runs.csv"


def test_the_constant_is_the_median_and_an_outlier_does_not_move_it() -> None:
    fit = fit_cluster([12.0, 22.0, 32.0, 90.0], [10.0, 20.0, 30.0, 40.0])
    assert fit.cluster_gib == pytest.approx(2.0)
    assert fit.rows == 4


def test_perfect_predictions_leave_no_error() -> None:
    predicted = [10.0 + i for i in range(FEW_RUNS)]
    fit = fit_cluster([p + 1.0 for p in predicted], predicted)
    assert fit.error == pytest.approx(0.0, abs=1e-12)


def test_few_runs_promise_no_more_than_none() -> None:
    assert fit_cluster([11.0, 21.0], [10.0, 20.0]).error == DEFAULT_ERROR


def test_nine_runs_in_ten_lie_in_the_interval_of_the_fitted_error() -> None:
    random = np.random.default_rng(3)
    predicted = np.full(200, 40.0)
    measured = predicted * np.exp(random.normal(0.0, 0.04, 200))
    error = error_of(measured, predicted, np.zeros(200))
    low, high = interval(predicted, np.zeros(200), Calibration(memory={"error": error}))
    assert np.mean((low <= measured) & (measured <= high)) == pytest.approx(0.9, abs=0.01)
    assert error == pytest.approx(0.04, rel=0.15)


def test_what_the_allocator_may_add_is_no_error() -> None:
    predicted = np.full(20, 40.0)
    measured = np.where(np.arange(20) % 2 == 0, 40.0, 45.0)
    assert error_of(measured, predicted, np.full(20, 5.0)) == 0.0
    assert error_of(measured, predicted, np.zeros(20)) > 0.05


def test_a_shape_with_many_runs_does_not_hide_the_others() -> None:
    predicted = np.full(100, 40.0)
    measured = np.where(np.arange(100) < 90, 40.0, 44.0)
    even = np.where(np.arange(100) < 90, 1 / 90, 1 / 10)
    assert error_of(measured, predicted, np.zeros(100), even) > error_of(
        measured[:90], predicted[:90], np.zeros(90)
    )
    assert error_of(measured, predicted, np.zeros(100), even) == pytest.approx(np.log(1.1) / 1.645, rel=0.01)


def test_an_error_measured_with_one_trainer_is_not_anothers() -> None:
    known = Calibration(memory={"megatron-deepspeed.error": 0.03}, memory_error=0.03)
    assert spread(known, "megatron-deepspeed") == 0.03
    assert spread(known, "megatron-lm") == DEFAULT_ERROR
    assert spread(Calibration(memory_error=0.03), "megatron-lm") == 0.03
    assert spread(Calibration(memory={"error": 0.001}), "fsdp") == SMALLEST_ERROR


def test_a_large_negative_constant_still_has_an_error() -> None:
    assert math.isfinite(fit_cluster([1.0, 1.0, 1.0], [50.0, 60.0, 5.0]).error)


@pytest.mark.parametrize(
    ("measured", "predicted"),
    [([], []), ([1.0], [1.0, 2.0]), ([float("nan")], [1.0]), ([0.0], [1.0]), ([-3.0], [1.0])],
)
def test_bad_figures_are_refused(measured: list[float], predicted: list[float]) -> None:
    with pytest.raises(UserError):
        fit_cluster(measured, predicted)


def test_every_constant_says_where_it_comes_from() -> None:
    for constant in CONSTANTS.values():
        assert constant.unit
        assert constant.meaning
        assert constant.source


def test_an_unknown_constant_names_the_nearest() -> None:
    with pytest.raises(UserError, match="cluster_gib"):
        value(Calibration(), "clutser_gib")


@pytest.mark.parametrize(("copies", "others"), [(30, 1), (1, 30)])
def test_nine_in_ten_of_runs_and_of_shapes_lie_in_the_interval(copies: int, others: int) -> None:
    """Runs of one shape scatter, those of others do not: many runs of either must not narrow it for the rest."""
    runs = [r for r in read(DATA).runs if r.memory_gib and r.memory_kind == "device"]
    wild = next(r for r in runs if r.id == "h200-1.3B_m4_flash_z0")
    calm = next(r for r in runs if r.model.hidden != wild.model.hidden)
    scattered = [
        replace(wild, memory_gib=_estimate(wild).device_gib * (0.7 + 0.4 * i / copies)) for i in range(copies)
    ]
    known = scattered + [replace(calm, memory_gib=_estimate(calm).device_gib)] * others
    width = math.exp(1.645 * leave_out_memory.fit_group(known, with_constant=False).spread)

    def inside(run: Run) -> bool:
        e = _estimate(run)
        measured = run.memory_gib or 0.0
        return e.device_gib / width <= measured <= (e.device_gib + surprise_of(e)) * width

    for some in (scattered, known):
        assert np.mean([inside(run) for run in some]) >= 0.9 * (1 - 1 / len(some)) - 1e-9


def _estimate(run: Run) -> MemoryEstimate:
    return memory.estimate(run.model, run.node, run.trainer, run.layout, run.seq_length)
