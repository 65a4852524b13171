"""Owns tests of trainer names, versions and what follows from them."""

from __future__ import annotations

import pytest

from gpt_tune.errors import UserError
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.layouts.trainers import accumulation_dtype, parse_trainer, pipeline_engine
from gpt_tune.layouts.versions import parse


def test_names_and_versions() -> None:
    assert parse_trainer("megatron-deepspeed") == Trainer()
    assert parse_trainer("Megatron-DeepSpeed@deepspeed-0.17.6").deepspeed == "0.17.6"
    assert parse_trainer("megatron-lm").deepspeed is None
    assert parse_trainer("megatron-lm@0.12.1").version == "0.12.1"
    assert parse_trainer("megatron-deepspeed@deepspeed-0.16.9+ali").deepspeed == "0.16.9+ali"
    assert parse("v0.16.9+ali") == (0, 16, 9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("megatron-deepspede", "megatron-deepspeed"),
        ("", "trainer"),
        ("megatron-deepspeed@deepspeed-new", "not a version"),
        ("megatron-deepspeed@deepspeed-", "not a version"),
        ("megatron-deepspeed@deepspeed-0", "not a whole version"),
        ("megatron-deepspeed@deepsped-0.16.4", "deepspeed"),
        ("megatron-lm@deepspeed-0.16.4", "does not use DeepSpeed"),
    ],
)
def test_bad_trainers(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_trainer(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("zero", "precision", "version", "dtype"),
    [
        (0, "bf16", "0.16.4", "fp32"),
        (0, "bf16", "0.17.5", "fp32"),
        (0, "bf16", "0.17.6", "bf16"),
        (1, "bf16", "0.16.4", "bf16"),
        (0, "fp16", "0.16.4", "fp16"),
        (0, "bf16", None, "bf16"),
    ],
)
def test_default_accumulation(zero: int, precision: str, version: str | None, dtype: str) -> None:
    assert accumulation_dtype(zero, precision, Trainer(deepspeed=version)) == dtype


def test_stated_accumulation_stands() -> None:
    assert accumulation_dtype(1, "bf16", Trainer(gradient_accumulation_dtype="fp32")) == "fp32"


@pytest.mark.parametrize(
    ("layout", "trainer", "runs"),
    [
        (Layout(), Trainer(), True),
        (Layout(zero_stage=1, pipeline_parallel=4), Trainer(), True),
        (Layout(zero_stage=2), Trainer(), False),
        (Layout(context_parallel=2, context_method="ulysses"), Trainer(), False),
        (Layout(), Trainer(pipeline_engine=False), False),
        (Layout(), Trainer(name="megatron-lm", deepspeed=None), False),
    ],
)
def test_pipeline_engine(layout: Layout, trainer: Trainer, runs: bool) -> None:
    assert pipeline_engine(layout, trainer) is runs
