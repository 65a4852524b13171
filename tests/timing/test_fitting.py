"""Owns testing that a fit finds constants that made the runs, and is not led astray by bad ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from gpt_tune import toml
from gpt_tune.calibration import Calibration
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.models.shape import ModelShape
from gpt_tune.resources import data_dir
from gpt_tune.timing.fitting import MOVABLE, Measured, Predictor, fit_constants
from tests.timing.cases import GPT, LLAMA, TRAINERS, WIDE, layout, node

TRUE = {
    "gemm_fraction": 0.75,
    "memory_fraction": 0.6,
    "intra_fraction": 0.5,
    "host_us": 90.0,
    "step_ms": 15.0,
}


def runs(constants: Mapping[str, float]) -> list[Measured]:
    """Runs of three models, with the times these constants give."""
    chosen: list[tuple[ModelShape, Layout, int]] = [
        (model, layout(tensor_parallel=t, micro_batch_size=b, gradient_accumulation_steps=m), 2048)
        for model in (GPT, LLAMA, WIDE)
        for t in (1, 2, 8)
        for b in (1, 4)
        for m in (1, 8)
    ]
    made = [Measured(model, node(), Trainer(), one, length, 1.0) for model, one, length in chosen]
    seconds = Predictor(made).seconds(Calibration(timing=constants))
    return [replace(run, seconds=float(s)) for run, s in zip(made, seconds)]


def errors(made: list[Measured], constants: Mapping[str, float]) -> list[float]:
    predicted = Predictor(made).seconds(Calibration(timing=constants))
    return [float(abs(p / run.seconds - 1)) for p, run in zip(predicted, made)]


def test_constants_that_made_the_runs_are_found() -> None:
    made = runs(TRUE)
    fitted = fit_constants(made)
    assert max(errors(made, fitted)) < 0.03
    assert np.mean(errors(made, {})) > 0.1
    assert fitted["gemm_fraction"] == pytest.approx(0.75, rel=0.05)
    assert fitted["host_us"] == pytest.approx(90, rel=0.15)


def test_a_few_runs_gone_wrong_do_not_move_the_rest() -> None:
    made = runs(TRUE)
    spoilt = [replace(run, seconds=run.seconds * 2.5) if i % 7 == 0 else run for i, run in enumerate(made)]
    assert float(np.median(errors(made, fit_constants(spoilt)))) < 0.02


def test_what_the_runs_do_not_show_is_not_fitted() -> None:
    fitted = fit_constants(runs(TRUE))
    # One node, no fp8, no pipeline, no optimizer of the ZeRO kind.
    for name in ("fp8_speedup", "inter_fraction", "inter_us", "overlap", "tensor_overlap", "jitter"):
        assert name not in fitted
    for name, x in fitted.items():
        assert MOVABLE[name][1] <= x <= MOVABLE[name][2]


def test_known_facts_are_kept() -> None:
    fitted = fit_constants(runs({**TRUE, "fused_pointwise": 1.0}), {"fused_pointwise": 1.0, "step_ms": 15.0})
    assert "fused_pointwise" not in fitted
    assert "step_ms" not in fitted
    assert fitted["memory_fraction"] == pytest.approx(0.6, rel=0.1)


def test_no_runs_no_constants() -> None:
    assert fit_constants([]) == {}


def test_one_run_moves_constants_but_little() -> None:
    one = replace(runs(TRUE)[0], seconds=100.0)
    fitted = fit_constants([one])
    for name, x in fitted.items():
        assert MOVABLE[name][1] <= x <= MOVABLE[name][2]


def test_a_predictor_takes_runs_of_different_lengths_in_one_batch() -> None:
    mixed = [
        Measured(replace(LLAMA, seq_length=s), node(), TRAINERS[2], layout(micro_batch_size=b), s, 1.0)
        for s in (2048, 8192)
        for b in (1, 2)
    ]
    together = Predictor(mixed).seconds(None)
    alone = [float(Predictor([run]).seconds(None)[0]) for run in mixed]
    assert together.tolist() == alone


def test_no_fit_is_faster_than_the_fastest_product_measured() -> None:
    """Runs of a card with better products pull at their rate, which ends at what was ever seen of this one."""
    assert fit_constants(runs({"gemm_fraction": 1.3}))["gemm_fraction"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "name", sorted(path.name for path in (data_dir("profiles") / "clusters").glob("*.toml"))
)
def test_no_shipped_calibration_is_faster_either(name: str) -> None:
    constants = toml.load(data_dir("profiles") / "clusters" / name)["timing"]["constants"]
    tables = [constants, *(table for table in constants.values() if isinstance(table, dict))]
    assert all(table.get("gemm_fraction", 0.0) <= 1.0 for table in tables)
