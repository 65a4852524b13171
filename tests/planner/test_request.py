"""Owns tests of turning what a user typed into a request."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_tune.errors import UserError
from gpt_tune.hardware.catalogue import node_for
from gpt_tune.planner import build_request, default_global_batch, search
from gpt_tune.planner.request import normalised
from tests.planner.support import request


def test_defaults() -> None:
    found = request()
    assert (found.seq_length, found.precision, found.top) == (2048, "bf16", 10)
    assert found.global_batch_size == 256
    assert found.trainer.deepspeed == "0.16.4"
    assert found.node.gpus_per_node == 8


@pytest.mark.parametrize(
    ("gpus", "seq_length", "batch"),
    [
        (64, 2048, 256),
        (64, 8192, 64),
        (1, 2048, 256),
        (3, 2048, 192),
        (24, 2048, 192),
        (16384, 2048, 16384),
        (5, 2048, 320),
    ],
)
def test_default_global_batch(gpus: int, seq_length: int, batch: int) -> None:
    assert default_global_batch(gpus, seq_length) == batch
    assert batch % gpus == 0


def test_a_fix_stands_for_its_flag() -> None:
    found = request(fix=["precision=fp16", "global_batch_size=128", "gradient_accumulation_dtype=fp32"])
    assert (found.precision, found.global_batch_size) == ("fp16", 128)
    assert found.trainer.gradient_accumulation_dtype == "fp32"
    assert not any(key.startswith("trainer.") for key in found.fixed)
    assert normalised(found) == found


def test_a_node_of_a_cluster() -> None:
    node = node_for("h100")
    assert build_request("gpt-1.3b", 8, node=node).node == node
    assert build_request("gpt-1.3b", 4, node=node, gpus_per_node=4).node.gpus_per_node == 4
    assert build_request("gpt-1.3b", 16, gpu="h100", gpus_per_node=16).node.gpus_per_node == 16


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"gpus": 63}, ("56", "64")),
        ({"gpus": 12}, ("8", "16")),
        ({"gpus": 0}, ("below 1",)),
        ({"gpus": -8}, ("below 1",)),
        ({"gpus": float("nan")}, ("whole number",)),
        ({"gpus": 2.5}, ("whole number",)),
        ({"gpus": "many"}, ("whole number",)),
        ({"gpus": 10**9}, ("The number of GPUs is", "above 1000000")),
        ({"gpu": None}, ("--gpu", "--cluster")),
        ({"gpu": "h1000"}, ("h100",)),
        ({"gpus_per_node": 0}, ("below 1",)),
        ({"model": "gpt-146b"}, ("gpt-145b",)),
        ({"model": "layers=24,hidden=2048,heads=15"}, ("16",)),
        ({"seq_length": 0}, ("below 1",)),
        ({"seq_length": "long"}, ("whole number",)),
        ({"global_batch_size": -1}, ("below 1",)),
        ({"global_batch_size": float("inf")}, ("whole number",)),
        ({"trainer": "megatron"}, ("megatron-lm",)),
        ({"precision": "bf8"}, ("bf16",)),
        ({"top": 0}, ("below 1",)),
        ({"fix": ["tensor_paralel=8"]}, ("tensor_parallel",)),
        ({"fix": ["precision=fp16"], "precision": "bf16"}, ("disagree",)),
        ({"fix": ["global_batch_size=8"], "global_batch_size": 16}, ("disagree",)),
    ],
    ids=str,
)
def test_bad_input(keys: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as caught:
        request(**keys)
    text = str(caught.value)
    assert all(w in text for w in words), text
    assert "\n" not in text
    assert caught.value.exit_code == 2


def test_a_profiles_nested_keys() -> None:
    found = request(fix={"recompute": {"granularity": "full"}, "tensor_parallel": 8})
    assert found.fixed["recompute.granularity"] == "full"
    assert found.fixed["tensor_parallel"] == 8


def test_gpus_before_ampere_train_in_fp16_without_flash_attention() -> None:
    asked = build_request("gpt-1.3b", 16, gpu="v100")
    assert asked.precision == "fp16"
    found = search(asked).plans
    assert found
    assert not any(plan.layout.flash_attention for plan in found)
    assert build_request("gpt-1.3b", 16, gpu="a100").precision == "bf16"
    assert build_request("gpt-1.3b", 8, gpu="mi300x").precision == "bf16"
