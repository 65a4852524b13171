"""Owns tests of what a search looks for: step time, fewest GPUs, memory left, several batch sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpt_tune.errors import UserError
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.planner import estimate, plan_json, search
from gpt_tune.planner.objective import batch_sizes, between, gpu_counts
from gpt_tune.planner.rank import TIE, caution, headroom
from tests.planner.support import request

SMALL: dict[str, Any] = {"model": "gpt-13b", "gpus": 32, "gpu": "a100", "global_batch_size": 128}


def test_fewest_gpus_that_fit() -> None:
    asked = request(**SMALL, objective="gpus")
    found = search(asked)
    assert found.plans
    assert found.gpus is not None
    assert all(p.layout.gpus == found.gpus for p in found.plans)
    counts = [t.gpus for t in found.tried]
    assert counts == sorted(set(counts))
    assert {n for n in gpu_counts(asked) if n < found.gpus} <= set(counts)
    for tried in found.tried:
        assert tried.seconds is None
        assert not search(request(**{**SMALL, "gpus": tried.gpus})).plans
    assert plan_json(asked, found)["gpus"] == found.gpus


@pytest.mark.parametrize(
    ("model", "gpu", "fewest"),
    [("llama-3-8b", "p4d", 6), ("gpt-2.7b", "v100-32", 3), ("gpt-145b", "p6-b200", 16)],
)
def test_fewest_gpus_are_not_only_powers_of_two(model: str, gpu: str, fewest: int) -> None:
    """No smaller number, of those a node has and of whole nodes, would do."""
    keys: dict[str, Any] = {"model": model, "gpu": gpu, "global_batch_size": 64}
    assert search(request(**keys, gpus=64, objective="gpus")).gpus == fewest
    for fewer in range(1, fewest):
        if fewer <= 8 or fewer % 8 == 0:
            assert not search(request(**keys, gpus=fewer)).plans


def test_numbers_of_gpus_between_two() -> None:
    assert between(4, 8, 8) == [5, 6, 7]
    assert between(0, 1, 8) == []
    assert between(8, 16, 8) == []
    assert between(64, 96, 8) == [72, 80, 88]
    assert between(1024, 1536, 8) == [1280]


def test_fewest_gpus_that_are_fast_enough() -> None:
    most = search(request(**SMALL)).plans[0].step.seconds
    found = search(request(**SMALL, objective="gpus", target_seconds=2.2 * most))
    assert found.plans[0].step.seconds <= 2.2 * most
    assert found.gpus is not None
    assert found.gpus < 32
    slower = [t for t in found.tried if t.seconds is not None]
    assert all(t.seconds > 2.2 * most for t in slower if t.seconds is not None)
    none = search(request(**SMALL, objective="gpus", target_seconds=most / 10))
    assert none.plans == ()
    assert none.gpus is None
    assert none.tried[-1].gpus == 32
    assert none.tried[-1].seconds == pytest.approx(most, rel=0.05)


def test_most_memory_left_among_the_fast() -> None:
    fastest = search(request(**SMALL)).plans[0]
    found = search(request(**SMALL, objective="headroom", within=0.1)).plans
    assert found[0].memory.device_gib <= fastest.memory.device_gib
    assert found[0].step.seconds <= fastest.step.seconds * 1.1 * 1.05
    wider = search(request(**SMALL, objective="headroom", within=0.5)).plans
    assert wider[0].memory.device_gib <= found[0].memory.device_gib


def test_headroom_scores() -> None:
    score = headroom(np.array([1.0, 1.04, 1.06, 2.0]), np.array([70.0, 40.0, 20.0, 10.0]), 0.05)
    assert list(np.argsort(score)) == [1, 0, 2, 3]
    assert len(headroom(np.array([]), np.array([]), 0.05)) == 0


def test_batch_sizes_are_compared_by_tokens_a_second() -> None:
    asked = request("gpt-13b", 16, "a100", global_batch_size="64..256", top=6)
    assert asked.global_batch_sizes == (64, 128, 256)
    plans = search(asked).plans
    assert {p.layout.global_batch_size for p in plans[:3]} == {64, 128, 256}
    rate = [p.step.tokens_per_second_per_gpu for p in plans[:3]]
    assert rate[0] >= max(rate) * 0.95
    for plan in plans:
        x = plan.layout
        assert x.micro_batch_size * x.gradient_accumulation_steps * x.data_parallel == x.global_batch_size
    alone = search(request("gpt-13b", 16, "a100", global_batch_size=64)).plans[0]
    assert alone.layout in {p.layout for p in plans}
    with pytest.raises(UserError, match="one global batch size"):
        estimate(asked)


@pytest.mark.parametrize(
    ("text", "gpus", "sizes"),
    [
        ("64", 8, (64,)),
        (64, 8, (64,)),
        ("512,64, 128", 8, (64, 128, 512)),
        ("64..100", 8, (64, 96, 100)),
        ("100..1000", 48, (96, 100, 192, 200, 384, 400, 800, 816, 1000)),
        ("64..64", 8, (64,)),
    ],
)
def test_batch_size_texts(text: Any, gpus: int, sizes: tuple[int, ...]) -> None:
    found = batch_sizes(text, gpus)
    if text == "100..1000":
        assert found[0] >= 100
        assert {100, 192, 1000} <= set(found)
    elif text == "64..100":
        assert {64, 100} <= set(found)
    else:
        assert found == sizes
    assert len(batch_sizes("1..10000000", 7)) <= 17


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"global_batch_size": "512..64"}, "backwards"),
        ({"global_batch_size": "a..b"}, "whole number"),
        ({"global_batch_size": "0..8"}, "below 1"),
        ({"global_batch_size": "-8,8"}, "below 1"),
        ({"global_batch_size": ",".join(map(str, range(1, 40)))}, "too many"),
        ({"global_batch_size": ",,"}, "names none"),
        ({"global_batch_size": "64,128", "fix": ["global_batch_size=64"]}, "disagree"),
        ({"objective": "speed"}, "objective"),
        ({"objective": "gpus", "target_seconds": float("nan")}, "target step time"),
        ({"objective": "gpus", "target_seconds": -1}, "target step time"),
        ({"objective": "step", "target_seconds": 3}, "needs the objective gpus"),
        ({"objective": "headroom", "within": 0}, "is 0 %"),
        ({"objective": "headroom", "within": 30}, "is 3000 %"),
        ({"objective": "headroom", "within": "much"}, "not a number"),
    ],
    ids=str,
)
def test_impossible_objectives(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        request(**keys)
    assert words in str(caught.value)


def test_adding_up_in_fp32_wins_over_as_fast_a_layout_that_does_not() -> None:
    """DeepSpeed 0.16.4: fp32 without ZeRO, bf16 with ZeRO-1."""
    safe, unsafe = (
        Layout(gradient_accumulation_steps=64),
        Layout(gradient_accumulation_steps=64, zero_stage=1),
    )
    few = replace(unsafe, gradient_accumulation_steps=2)
    batch = LayoutBatch.of([safe, unsafe, few])
    factors = caution(batch, Trainer(deepspeed="0.16.4"), np.zeros(3), 8)
    assert factors[0] == factors[2] < factors[1] <= 1.05
    assert list(caution(batch, Trainer("megatron-lm", deepspeed=None), np.zeros(3), 8)) == [1, 1, 1]
    stated = Trainer(deepspeed="0.16.4", gradient_accumulation_dtype="fp32")
    assert list(caution(batch, stated, np.zeros(3), 8)) == [1, 1, 1]
    tight = caution(batch, stated, np.array([0.95, 0.5, 0.5]), 8)
    assert tight[0] > tight[1]
    full = caution(LayoutBatch.of([safe] * 3), stated, np.array([0.985, 1.0, 1.1]), 8)
    assert tight[0] < full[0] < full[1] == full[2] == pytest.approx(1.1)
    gathers = LayoutBatch.of([Layout(zero_stage=3, data_parallel=n) for n in (8, 16)])
    assert list(caution(gathers, stated, np.zeros(2), 8)) == [1, pytest.approx(1.15)]
    assert list(caution(gathers, Trainer("fsdp", deepspeed=None), np.zeros(2), 8)) == [1, 1]
    wide = LayoutBatch.of([Layout(tensor_parallel=8), Layout(tensor_parallel=16)])
    assert list(caution(wide, stated, np.zeros(2), 8)) == [1, pytest.approx(1.1)]


def test_tensor_parallelism_stays_on_the_fast_link_in_known_configurations() -> None:
    for name, gpus, gpu, batch, trainer in (
        ("megatron-530b", 2240, "a100", 1920, "megatron-deepspeed"),
        ("bloom-176b", 384, "a100", 2048, "megatron-deepspeed"),
        ("gpt-175b", 1024, "a100", 1536, "megatron-lm"),
        ("llama-2-70b", 2048, "a100", 1024, "megatron-lm"),
        ("gpt-1t", 3072, "a100", 3072, "megatron-lm"),
        ("llama-3.1-405b", 8192, "h100", 2048, "megatron-lm"),
    ):
        plan = search(request(name, gpus, gpu, global_batch_size=batch, trainer=trainer, top=1)).plans[0]
        assert plan.layout.tensor_parallel <= 8
        assert plan.layout.pipeline_parallel > 1
        assert (plan.memory.oom_probability or 0) < 0.2
        assert plan.step.mfu is not None
        # Published runs of these models and machines lie between 35 and 60 %.
        assert 0.3 < plan.step.mfu < 0.68


@pytest.mark.parametrize("name", ["gpt-145b", "gpt-13b", "llama-3-70b"])
def test_the_first_plan_is_not_unsafe_when_a_safe_one_is_as_fast(name: str) -> None:
    plans = search(request(name, 64, "p6-b200", top=20)).plans
    first = plans[0]
    if "bf16-accumulation" not in {r.rule for r in first.reasons}:
        return
    safe = [p for p in plans if "bf16-accumulation" not in {r.rule for r in p.reasons}]
    assert all(p.step.seconds > first.step.seconds * (1 + TIE) for p in safe)
