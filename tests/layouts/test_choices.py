"""Owns tests of `--fix KEY=VALUE`."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_tune.errors import UserError
from gpt_tune.layouts.choices import CHOICES, agree, apply, apply_to_trainer, check_fixed, parse_fix
from gpt_tune.layouts.layout import Layout, Recompute, Trainer


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("tensor_parallel=8", "tensor_parallel", 8),
        ("layout.tensor_parallel=8", "tensor_parallel", 8),
        ("tensor-parallel = 8", "tensor_parallel", 8),
        ("recompute=full", "recompute.granularity", "full"),
        ("recompute.granularity=FULL", "recompute.granularity", "full"),
        ("recompute.layers=4", "recompute.layers", 4),
        ("recompute.layers=null", "recompute.layers", None),
        ("recompute.method=none", "recompute.method", None),
        ("recompute=none", "recompute.granularity", "none"),
        ("fusions.bias_gelu=false", "fusions.bias_gelu", False),
        ("sequence_parallel=true", "sequence_parallel", True),
        ("sequence_parallel=1", "sequence_parallel", True),
        ("zero_stage=0", "zero_stage", 0),
        ("context_method=ulysses", "context_method", "ulysses"),
        ("precision=fp16", "precision", "fp16"),
        ("gradient_accumulation_dtype=fp32", "trainer.gradient_accumulation_dtype", "fp32"),
    ],
)
def test_keys_and_types(text: str, key: str, value: Any) -> None:
    assert parse_fix([text]) == {key: value}


def test_the_last_of_a_key_wins() -> None:
    assert parse_fix(["tensor_parallel=2", "zero_stage=1", "tensor_parallel=4"]) == {
        "tensor_parallel": 4,
        "zero_stage": 1,
    }
    assert parse_fix(["recompute=full", "recompute.granularity=none"]) == {"recompute.granularity": "none"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tensor_parallel", "KEY=VALUE"),
        ("=8", "KEY=VALUE"),
        ("tensor_paralel=8", "tensor_parallel"),
        ("recompute.layer=8", "recompute.layers"),
        ("fusion.bias_gelu=true", "fusions.bias_gelu"),
        ("seq_length=4096", "--seq-length"),
        ("gpus=8", "--gpus"),
        ("tensor_parallel=eight", "whole number"),
        ("tensor_parallel=", "whole number"),
        ("tensor_parallel=2.5", "whole number"),
        ("tensor_parallel=nan", "whole number"),
        ("tensor_parallel=0", "from 1"),
        ("tensor_parallel=-8", "from 1"),
        ("tensor_parallel=99999999999999999999", "4096"),
        ("zero_stage=4", "from 0 to 3"),
        ("sequence_parallel=perhaps", "true or false"),
        ("precision=fp64", "bf16"),
        ("recompute=some", "selective"),
        ("context_method=zigzag", "ulysses"),
    ],
)
def test_bad_choices_get_one_sentence(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_fix([text])
    assert words in str(caught.value)


def test_from_a_profile_nested_or_dotted() -> None:
    nested = {
        "recompute": {"granularity": "full", "layers": 2},
        "tensor_parallel": 4.0,
        "fusions.bias_gelu": False,
    }
    assert check_fixed(nested) == {
        "recompute.granularity": "full",
        "recompute.layers": 2,
        "tensor_parallel": 4,
        "fusions.bias_gelu": False,
    }
    assert check_fixed({"recompute": "full"}) == {"recompute.granularity": "full"}
    for wrong in (
        {"tensor_parallel": True},
        {"tensor_parallel": 2.5},
        {"tensor_parallel": float("nan")},
        {"tensor_parallel": None},
        {"sequence_parallel": 1},
        {"recompute": {"depth": 2}},
        {"zero_stage": [1]},
    ):
        with pytest.raises(UserError):
            check_fixed(wrong)


def test_flags_and_fixed_keys_must_agree() -> None:
    assert agree({"precision": "bf16"}, {"precision": "bf16", "global_batch_size": None}) == {
        "precision": "bf16"
    }
    assert agree({}, {"global_batch_size": 64}) == {"global_batch_size": 64}
    with pytest.raises(UserError, match=r"--global-batch-size 64 and --fix global_batch_size=32 disagree"):
        agree({"global_batch_size": 32}, {"global_batch_size": 64})


def test_applying() -> None:
    changed = apply(
        Layout(), parse_fix(["recompute=full", "recompute.layers=2", "fusions.bias_gelu=no", "zero_stage=1"])
    )
    assert changed.recompute == Recompute("full", None, 2)
    assert not changed.fusions.bias_gelu
    assert changed.fusions.masked_softmax
    assert changed.zero_stage == 1
    trainer = apply_to_trainer(
        Trainer(), parse_fix(["gradient_accumulation_dtype=fp32", "pipeline_engine=false"])
    )
    assert trainer.gradient_accumulation_dtype == "fp32"
    assert trainer.pipeline_engine is False
    assert apply_to_trainer(Trainer(), {}) == Trainer()


def test_every_key_of_the_layout_json_can_be_fixed() -> None:
    def paths(data: dict[str, Any], prefix: str = "") -> list[str]:
        found = []
        for key, value in data.items():
            found += paths(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]
        return found

    assert set(paths(Layout().to_json())) == {k for k in CHOICES if not k.startswith("trainer.")}


@given(
    st.one_of(
        st.text(max_size=30), st.builds("{}={}".format, st.sampled_from([*CHOICES]), st.text(max_size=6))
    )
)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """Never anything but checked values or a UserError."""
    with contextlib.suppress(UserError):
        for key, value in parse_fix([text]).items():
            assert check_fixed({key: value}) == {key: value}
