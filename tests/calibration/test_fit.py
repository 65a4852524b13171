"""Owns testing the fit itself, on problems with a known answer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from gpt_tune.calibration.fit import Free, fit

Floats = NDArray[np.float64]
X = np.linspace(1.0, 5.0, 20)


def power_law(scale: float, power: float) -> Floats:
    return np.asarray(scale * X**power)


def residuals(c: Mapping[str, float]) -> Floats:
    result: Floats = np.log(power_law(c["scale"], c["power"])) - np.log(power_law(3.0, 1.5))
    return result


LOOSE = [Free("scale", 1.0, 5.0, 1e-3, 1e3), Free("power", 1.0, 5.0, 0.1, 10.0)]


def test_finds_the_answer() -> None:
    assert fit(residuals, LOOSE) == pytest.approx({"scale": 3.0, "power": 1.5}, rel=0.02)


def test_ignores_wild_rows() -> None:
    wild = np.zeros(len(X))
    wild[[3, 11]] = -2.0
    found = fit(lambda c: residuals(c) + wild, LOOSE)
    assert found == pytest.approx({"scale": 3.0, "power": 1.5}, rel=0.05)


def test_stays_within_limits() -> None:
    found = fit(residuals, [Free("scale", 1.0, 5.0, 0.5, 2.0), Free("power", 1.0, 5.0, 0.1, 10.0)])
    assert 0.5 <= found["scale"] <= 2.0


def test_a_prior_outside_its_limits_is_pulled_in() -> None:
    assert fit(lambda c: np.zeros(3), [Free("x", 10.0, 1.0, 0.1, 2.0)]) == pytest.approx({"x": 2.0})


def test_what_has_no_effect_stays_at_its_prior() -> None:
    found = fit(residuals, [*LOOSE, Free("unused", 7.0, 1.0, 0.1, 100.0)])
    assert found["unused"] == pytest.approx(7.0, rel=1e-6)


def test_a_tight_prior_holds_against_few_rows() -> None:
    def one(c: Mapping[str, float]) -> Floats:
        return np.array([np.log(c["x"] / 4.0)])

    assert fit(one, [Free("x", 1.0, 0.01, 0.1, 10.0)])["x"] < 1.1
    assert fit(one, [Free("x", 1.0, 5.0, 0.1, 10.0)])["x"] > 3.5


def test_weights_count() -> None:
    def two(c: Mapping[str, float]) -> Floats:
        return np.array([np.log(c["x"] / 1.0), np.log(c["x"] / 1.2)])

    free = [Free("x", 1.1, 5.0, 0.1, 10.0)]
    assert fit(two, free, np.array([100.0, 1.0]))["x"] < 1.05
    assert fit(two, free, np.array([1.0, 100.0]))["x"] > 1.15


def test_a_start_does_not_change_the_answer() -> None:
    assert fit(residuals, LOOSE, None, {"scale": 2.5, "power": 2.0}) == pytest.approx(
        {"scale": 3.0, "power": 1.5}, rel=0.02
    )
