"""Owns tests of dealing layers out to stages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_tune.layouts.layout import Trainer
from gpt_tune.layouts.stages import (
    Split,
    divides_evenly,
    first_layer_of_stage,
    layers_of_stage,
    most_layers,
    sizes,
    split_of,
)

# What DeepSpeed's own partition_balanced returned at 0.19.6 for the layers of a GPTModelPipe.
DEEPSPEED = {
    (78, 12): [7] * 6 + [6] * 6,
    (80, 12): [7] * 8 + [6] * 4,
    (57, 2): [29, 28],
    (57, 8): [8] + [7] * 7,
    (24, 5): [5, 5, 5, 5, 4],
    (105, 8): [14] + [13] * 7,
    (126, 16): [8] * 14 + [7] * 2,
    (7, 3): [3, 2, 2],
    (96, 64): [2] * 32 + [1] * 32,
}


@pytest.mark.parametrize(("case", "expected"), DEEPSPEED.items(), ids=str)
def test_deepspeed_partition(case: tuple[int, int], expected: list[int]) -> None:
    assert list(sizes(*case)) == expected


def test_older_deepspeed_fills_stages_one_after_the_other() -> None:
    """BigScience's 78 layers on 12 stages: 7 each and 1 left."""
    assert sizes(78, 12, "greedy") == (7,) * 11 + (1,)
    assert sizes(9, 6, "greedy") == (2, 2, 2, 2, 1, 0)


def test_megatron_counts_the_ends_when_it_must() -> None:
    assert sizes(126, 16, "even") == (7,) + (8,) * 14 + (7,)
    assert sizes(80, 8, "even") == (10,) * 8


def test_bigscience_counts_the_embeddings() -> None:
    """Their tables: 106 layers on 12 stages, 70 on 12 and 100 on 6 come out even with the two ends counted."""
    bigscience = split_of(Trainer(version="bigscience", deepspeed="0.6.0"))
    assert sizes(106, 12, bigscience) == (8, *[9] * 10, 8)
    assert sizes(70, 12, bigscience) == (5, *[6] * 10, 5)
    assert sizes(100, 6, bigscience) == (16, *[17] * 4, 16)
    assert sizes(78, 12, bigscience) == (7,) * 11 + (1,)
    assert sizes(72, 12, bigscience) == (6,) * 12


@pytest.mark.parametrize(
    ("name", "deepspeed", "split"),
    [
        ("megatron-deepspeed", "0.16.4", "balanced"),
        ("megatron-deepspeed", "0.12.5", "balanced"),
        ("megatron-deepspeed", "0.12.4", "greedy"),
        ("megatron-deepspeed", None, "balanced"),
        ("megatron-lm", None, "even"),
        ("fsdp", None, "balanced"),
    ],
)
def test_split_of_trainer(name: str, deepspeed: str | None, split: str) -> None:
    assert split_of(Trainer(name=name, deepspeed=deepspeed)) == split


@given(st.integers(1, 200), st.integers(1, 64), st.sampled_from(["balanced", "greedy", "even", "embedding"]))
def test_every_layer_is_dealt_once(layers: int, p: int, split: Split) -> None:
    if p > layers:
        return
    stage = np.arange(p)
    n = layers_of_stage(layers, p, stage, split)
    start = first_layer_of_stage(layers, p, stage, split)
    assert n.sum() == layers
    assert (n >= 0).all()
    assert start.tolist() == np.concatenate([[0], np.cumsum(n)[:-1]]).tolist()
    assert n.max() == most_layers(layers, p)


@given(st.integers(1, 130), st.integers(1, 40), st.integers(1, 4))
def test_even_division_means_equal_middle_stages(layers: int, p: int, v: int) -> None:
    if p > layers or not divides_evenly(layers, p, v):
        return
    n = sizes(layers, p, "even")
    assert len(set(n[1:-1])) <= 1
    assert max(n) - min(n) <= (1 if p > 1 else 0)
