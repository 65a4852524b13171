"""Tests fitting the one constant of a cluster."""

from __future__ import annotations

import math

import pytest

from gpt_tune.calibration.constants import Calibration
from gpt_tune.errors import UserError
from gpt_tune.memory.constants import CONSTANTS, value
from gpt_tune.memory.fit import fit_cluster


def test_the_constant_is_the_median_and_an_outlier_does_not_move_it() -> None:
    fit = fit_cluster([12.0, 22.0, 32.0, 90.0], [10.0, 20.0, 30.0, 40.0])
    assert fit.cluster_gib == pytest.approx(2.0)
    assert fit.rows == 4


def test_perfect_predictions_leave_no_error() -> None:
    fit = fit_cluster([11.0, 21.0], [10.0, 20.0])
    assert fit.error == pytest.approx(0.0, abs=1e-12)


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
