"""Owns testing which value of a constant wins, and that constants scale with the hardware."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpt_tune.calibration import Calibration
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.timing import estimate
from gpt_tune.timing.constants import DEFAULTS, resolve, value
from gpt_tune.timing.fitting import MOVABLE
from tests.timing.cases import GPT, node

NEMO = Trainer(name="megatron-lm", version="nemo", deepspeed=None)


def test_the_longest_name_wins_and_a_calibration_beats_a_default() -> None:
    gpu = node().gpu
    table = {"step_ms": 1.0}
    assert value("step_ms", gpu, NEMO, None) == DEFAULTS["megatron-lm@nemo.step_ms"]
    assert value("step_ms", gpu, NEMO, Calibration(timing=table)) == 1.0
    table["megatron-lm.step_ms"] = 2.0
    assert value("step_ms", gpu, NEMO, Calibration(timing=table)) == 2.0
    table["megatron-lm@nemo.step_ms"] = 3.0
    assert value("step_ms", gpu, NEMO, Calibration(timing=table)) == 3.0
    assert value("step_ms", gpu, Trainer(), Calibration(timing=table)) == 1.0


def test_an_unknown_constant_is_a_bug() -> None:
    with pytest.raises(KeyError):
        value("no_such_thing", node().gpu, NEMO, None)


def test_defaults_follow_the_architecture() -> None:
    assert value("wave_tail", node("dgx-a100").gpu, Trainer(), None) > 0
    assert value("wave_tail", node("dgx-h100").gpu, Trainer(), None) == 0


def test_rates_scale_with_what_the_hardware_can_do() -> None:
    plain = node()
    twice = replace(
        plain,
        network_gbs_per_gpu=2 * plain.network_gbs_per_gpu,
        gpu=replace(
            plain.gpu,
            bf16_achievable_tflops=2 * plain.gpu.bf16_achievable_tflops,
            memory_bandwidth_gbs=2 * plain.gpu.memory_bandwidth_gbs,
            nvlink_gbs=2 * plain.gpu.nvlink_gbs,
        ),
    )
    a, b = resolve(plain, Trainer(), None), resolve(twice, Trainer(), None)
    for name in ("gemm_rate", "attention_rate", "memory_rate", "intra_rate", "inter_rate"):
        assert getattr(b, name) == pytest.approx(2 * getattr(a, name))
    assert b.host == a.host


def test_everything_movable_has_a_default_within_its_limits() -> None:
    for name, (spread, low, high) in MOVABLE.items():
        assert spread > 0
        for key, default in DEFAULTS.items():
            if key.rpartition(".")[2] == name and default > 0:
                assert low <= default <= high, key


def test_a_scale_stretches_every_part_of_a_step() -> None:
    plain = estimate(GPT, node(), Trainer(), Layout(), 2048)
    slower = estimate(GPT, node(), Trainer(), Layout(), 2048, Calibration(timing={"scale": 1.25}))
    assert slower.seconds == pytest.approx(1.25 * plain.seconds)
    assert slower.compute == pytest.approx(1.25 * plain.compute)
    assert slower.mfu == pytest.approx((plain.mfu or 0.0) / 1.25)
