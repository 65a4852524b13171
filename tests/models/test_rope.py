"""Rotary positions: read from every way a config.json says them, scaled as published, refused when they cannot be."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest

from gpt_tune.errors import UserError
from gpt_tune.models import catalogue, huggingface, rope

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "vocab_size": 320,
}  # fmt: skip
SCALING = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
LINE = "llama3 factor=8 low=1 high=4 original=8192"


@pytest.mark.parametrize(
    ("more", "theta", "scaling"),
    [
        ({}, 10000, ""),
        ({"rope_theta": 500000.0}, 500000, ""),
        ({"rope_theta": 500000.0, "rope_scaling": SCALING}, 500000, LINE),
        ({"rope_parameters": {**SCALING, "rope_theta": 5e5}}, 500000, LINE),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 1000000, ""),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, 10000, "linear factor=4"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, 10000,
         "yarn factor=4 original=32768"),
        ({"rope_scaling": None, "rope_theta": None}, 10000, ""),
    ],
)  # fmt: skip
def test_a_config_says_its_angles(more: dict[str, Any], theta: float, scaling: str) -> None:
    shape = huggingface.from_config({**LLAMA, **more}, "config.json", "x")
    assert (shape.rope_theta, shape.rope_scaling, shape.rotary_share) == (theta, scaling, 1.0)


def test_other_families_turn_a_part_of_a_head() -> None:
    neox = {**LLAMA, "model_type": "gpt_neox", "rotary_pct": 0.5, "rotary_emb_base": 20000}
    shape = huggingface.from_config(neox, "config.json", "x")
    assert (shape.rope_theta, shape.rotary_share) == (20000, 0.5)
    assert huggingface.from_config({**LLAMA, "model_type": "nemotron"}, "c", "x").rotary_share == 0.5


@pytest.mark.parametrize(
    ("model", "theta", "scaled"),
    [
        ("llama-2-7b", 10000, False), ("llama-3-8b", 500000, False), ("llama-3.1-8b", 500000, True),
        ("llama-3.2-1b", 500000, True), ("qwen3-8b", 1000000, False), ("gpt-1.3b", 10000, False),
    ],
)  # fmt: skip
def test_the_catalogue_has_published_bases(model: str, theta: float, scaled: bool) -> None:
    shape = catalogue.get(model)
    assert (shape.rope_theta, bool(shape.rope_scaling)) == (theta, scaled)


def test_every_rotary_model_has_frequencies() -> None:
    for shape in catalogue.all_models():
        if shape.positions == "rotary":
            found = rope.frequencies(shape)
            assert len(found) == int(shape.head_size * shape.rotary_share) // 2
            assert found[0] == 1.0
            assert all(a > b > 0 for a, b in itertools.pairwise(found))


def test_llama_3_scaling_leaves_short_waves_and_stretches_long_ones() -> None:
    shape = catalogue.get("llama-3.1-8b")
    plain = rope.frequencies(dataclasses.replace(shape, rope_scaling=""))
    scaled = rope.frequencies(shape)
    for before, after in zip(plain, scaled):
        wave = 2 * math.pi / before
        if wave < 8192 / 4:
            assert after == before
        elif wave > 8192:
            assert after == pytest.approx(before / 8)
        else:
            assert before / 8 < after < before
    assert scaled[0] == plain[0]
    assert scaled[-1] == pytest.approx(plain[-1] / 8)


def test_linear_scaling_divides_all() -> None:
    shape = dataclasses.replace(catalogue.get("llama-2-7b"), rope_scaling="linear factor=4")
    plain = rope.frequencies(catalogue.get("llama-2-7b"))
    assert rope.frequencies(shape) == pytest.approx([f / 4 for f in plain])


@pytest.mark.parametrize(
    "text",
    [
        "llama3 factor",
        "llama3 factor=x",
        "llama3 size=3",
        "linear factor=0",
        "linear factor=nan",
        "llama3 low=4 high=1",
    ],
)
def test_a_scaling_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="rope_scaling of"):
        catalogue.get(f"layers=2,hidden=64,heads=4,positions=rotary,rope_scaling={text}")


@pytest.mark.parametrize(
    "change", ["rope_theta=0", "rope_theta=nan", "rope_theta=x", "rotary_share=0", "rotary_share=2"]
)
def test_angles_that_cannot_be_are_refused(change: str) -> None:
    with pytest.raises(UserError, match=change.split("=")[0]):
        catalogue.get(f"layers=2,hidden=64,heads=4,positions=rotary,{change}")


def test_a_scaling_that_changes_while_it_runs_has_no_fixed_frequencies() -> None:
    shape = dataclasses.replace(catalogue.get("llama-2-7b"), rope_scaling="dynamic factor=2")
    with pytest.raises(UserError, match="'dynamic'"):
        rope.frequencies(shape)


def test_the_order_of_the_parts_does_not_matter() -> None:
    assert rope.canonical("llama3 original=8192 high=4 low=1 factor=8", "x") == LINE
