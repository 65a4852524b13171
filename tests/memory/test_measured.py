"""Tests the memory model against runs of the real trainer, and against what the B200 sweep found out."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from gpt_tune import memory
from gpt_tune.hardware import catalogue as hardware
from gpt_tune.layouts.layout import Fusions, Layout, Trainer
from gpt_tune.memory.types import MemoryEstimate
from gpt_tune.models import catalogue as models
from gpt_tune.workflows.runs_csv import Run, read

DATA = Path(__file__).parents[1] / "data" / "memory" / "h200_runs.csv"
TRUTH = Path(__file__).parents[3] / "shared" / "truth" / "layouts.csv"


def _runs() -> list[Run]:
    # read() wants every column of a validate file; the ones left out of this small copy are empty.
    return list(read(DATA).runs)


def _estimate(run: Run) -> MemoryEstimate:
    return memory.estimate(run.model, run.node, run.trainer, run.layout, run.seq_length)


@pytest.mark.parametrize("run", _runs(), ids=lambda r: r.id)
def test_allocated_peak_is_within_six_thousandths(run: Run) -> None:
    assert run.allocated_gib is not None
    assert _estimate(run).allocated_gib == pytest.approx(run.allocated_gib, rel=0.006)


def test_means_over_the_runs() -> None:
    runs = _runs()
    assert len(runs) > 60
    estimates = [_estimate(r) for r in runs]

    def errors(measured: list[float | None], predicted: list[float]) -> np.ndarray:
        pairs = [(m, p) for m, p in zip(measured, predicted) if m]
        return np.array([abs(p / m - 1) for m, p in pairs])

    allocated = errors([r.allocated_gib for r in runs], [e.allocated_gib for e in estimates])
    device = errors([r.memory_gib for r in runs], [e.device_gib for e in estimates])
    assert allocated.mean() < 0.001
    assert device.mean() < 0.05
    inside = [e.low_gib <= r.memory_gib <= e.high_gib for e, r in zip(estimates, runs) if r.memory_gib]
    assert np.mean(inside) >= 0.85


def test_peak_phase_follows_the_measured_one() -> None:
    """Full recompute at wide shapes peaks in the optimizer; without recompute in forward and backward."""
    by_id = {r.id: _estimate(r) for r in _runs()}
    assert by_id["h200-h8192L4_m4_unf_full_z0"].peak_phase == "optimizer"
    assert by_id["h200-1.3B_m4_flash_z0"].peak_phase == "forward_backward"


def _b200(
    model: str, t: int, p: int, zero: int, d: int, seq: int, micro: int = 1, flash: bool = False
) -> MemoryEstimate:
    """The sweep's settings: no fusions, ZeRO 2 and 3 without pipeline engine, DeepSpeed 0.16.4, batch 64."""
    layout = Layout(
        tensor_parallel=t,
        pipeline_parallel=p,
        data_parallel=d,
        zero_stage=zero,
        micro_batch_size=micro,
        gradient_accumulation_steps=64 // (d * micro),
        global_batch_size=64,
        flash_attention=flash,
        fusions=Fusions(masked_softmax=False, bias_gelu=False, bias_dropout=False),
    )
    trainer = Trainer("megatron-deepspeed", None, "0.16.4", expandable_segments=True)
    return memory.estimate(models.get(model), hardware.get_node("p6-b200"), trainer, layout, seq)


@pytest.mark.parametrize(
    ("t", "p", "zero", "d", "seq", "oom"),
    [
        (8, 2, 0, 4, 4096, True),  # "sequence 4096 does not fit 178 GB"
        (4, 1, 2, 16, 2048, True),  # "ZeRO-3 allows TP4 where ZeRO-2 runs out of memory"
        (4, 1, 3, 16, 2048, False),
        (8, 8, 0, 1, 2048, False),  # the best configuration
        (8, 2, 0, 4, 2048, False),  # the baseline
        (8, 1, 2, 8, 2048, False),
        (8, 1, 3, 8, 2048, False),
    ],
)
def test_what_the_b200_sweep_found(t: int, p: int, zero: int, d: int, seq: int, oom: bool) -> None:
    chance = _b200("gpt-145b", t, p, zero, d, seq).oom_probability
    assert chance is not None
    assert (chance > 0.5) is oom


def test_true_103b_would_have_fitted_where_the_145b_did_not() -> None:
    """The seed's OOM findings hold for 145.6B parameters and not for the size it was sold as."""
    # With flash attention, the flag the sweep did not pass, even the large one fits at 4096.
    assert _b200("gpt-145b", 8, 2, 0, 4, 4096, flash=True).oom_probability < 0.5  # type: ignore[operator]
    large, true = (_b200(m, 8, 2, 0, 4, 4096).device_gib for m in ("gpt-145b", "gpt-103b"))
    assert true < 0.8 * large


@pytest.mark.skipif(not TRUTH.exists(), reason="the measured runs are not here")
def test_out_of_memory_rows_are_called_and_fitting_rows_are_not() -> None:
    runs = [r for r in read(TRUTH).runs if r.id.startswith("tr11")]
    calls = {r.id: _estimate(r).oom_probability or 0.0 for r in runs}
    # 206B on TP4 PP12 DP8: predicted 67 GB by the references, which call it unexplained.
    unexplained = {"tr11-h14336-055"}
    ooms = [r.id for r in runs if r.oom and r.id not in unexplained]
    assert len(ooms) == 5
    assert all(calls[i] > 0.5 for i in ooms)
    fitting = [r.id for r in runs if not r.oom and r.memory_gib]
    assert sum(calls[i] > 0.5 for i in fitting) <= 0.05 * len(fitting)


def test_the_copied_runs_name_their_columns() -> None:
    with DATA.open(newline="") as lines:
        assert "allocated_gib" in next(csv.reader(lines))
