"""Owns tests of FLOPs and of converting between TFLOPS definitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_tune.errors import UserError
from gpt_tune.models import flops
from gpt_tune.models.catalogue import all_models, get
from gpt_tune.models.flops import KINDS, convert, hardware_flops, megatron_deepspeed_flops, model_flops
from tests.models.shapes import model_shapes

# Ratio of Megatron-DeepSpeed's printed TFLOPs to model TFLOPS for none, selective, full recompute.
PRINTED = {
    ("llama-3-8b", 8192): (1.09, 1.18, 1.46),
    ("llama-3-70b", 8192): (1.05, 1.10, 1.41),
    ("llama-2-7b", 4096): (1.08, 1.13, 1.43),
    ("gpt-13b", 2048): (1.03, 1.05, 1.38),
}


@pytest.mark.parametrize(("case", "ratios"), PRINTED.items(), ids=lambda x: str(x))
def test_printed_over_model(case: tuple[str, int], ratios: tuple[float, float, float]) -> None:
    model = get(case[0])
    for granularity, ratio in zip(("none", "selective", "full"), ratios):
        printed = megatron_deepspeed_flops(model, case[1], 1.0, granularity)
        assert printed / model_flops(model, case[1], 1.0) == pytest.approx(ratio, abs=0.006)


def test_model_flops_is_six_per_parameter_and_token_for_matrices() -> None:
    """Without the attention scores and the embedding look-up the count is 6 N, by definition."""
    gpt = get("gpt-13b")
    attention = 3 * gpt.layers * flops.attention_core_forward(gpt, 2048)
    matrices = 12 * gpt.layers * gpt.hidden**2 + gpt.vocab * gpt.hidden
    assert model_flops(gpt, 2048, 1.0) - attention == pytest.approx(6 * matrices)


def test_published_rate_of_the_seed_run() -> None:
    """476.6 printed TFLOPS on 64 GPUs at global batch 64 is a step of 3.86 s (the seed's own figure)."""
    gpt = get("gpt-145b")
    work = megatron_deepspeed_flops(gpt, 2048, 64 * 2048, "none", vocab=51200)
    assert work / (476.6e12 * 64) == pytest.approx(3.86, abs=0.01)


def test_narayanan_equation_3() -> None:
    """Their 1008B run: 163 TFLOPS, 3072 GPUs, batch 3072; equation 3 gives 34.0 s, as eq. 4's 84 days imply."""
    gpt = get("gpt-1t")
    seconds = flops.narayanan_flops(gpt, 2048, 3072 * 2048, "full", vocab=51200) / (163e12 * 3072)
    assert 450e9 / (3072 * 2048) * seconds / 86400 == pytest.approx(84, abs=15)


def test_gqa_drops_key_and_value_products() -> None:
    """2 // 4 is 0: the printed figure is that of a model without key and value matrices."""
    llama = get("llama-3-8b")
    h, n, s = llama.hidden, llama.layers, 8192
    forward = n * 2 * h * h + 2 * n * h * s + 3 * n * llama.ffn * h + llama.vocab * h
    assert megatron_deepspeed_flops(llama, s, 1.0) == pytest.approx(2 * 3 * forward)


@pytest.mark.parametrize("model", all_models(), ids=lambda m: m.id)
def test_every_model_orders_its_rates(model) -> None:  # type: ignore[no-untyped-def]
    s = model.seq_length
    plain = model_flops(model, s, 10.0)
    assert plain == pytest.approx(10.0 * model_flops(model, s, 1.0))
    assert hardware_flops(model, s, 10.0) == plain
    assert plain < hardware_flops(model, s, 10.0, "selective") < hardware_flops(model, s, 10.0, "full")
    half = hardware_flops(model, s, 10.0, "full", recomputed_share=0.5)
    assert plain < half < hardware_flops(model, s, 10.0, "full")
    assert hardware_flops(model, s, 10.0, "full") < 4 / 3 * plain


@given(
    model_shapes(),
    st.sampled_from(KINDS),
    st.sampled_from(KINDS),
    st.sampled_from(["none", "selective", "full"]),
    st.floats(1, 1000),
)
def test_conversion_goes_both_ways(model, a: str, b: str, granularity: str, rate: float) -> None:  # type: ignore[no-untyped-def]
    there = convert(rate, a, b, model, 64, granularity)
    assert convert(there, b, a, model, 64, granularity) == pytest.approx(rate)
    assert convert(rate, a, a, model, 64, granularity) == pytest.approx(rate)


def test_unknown_definition() -> None:
    with pytest.raises(UserError, match="hardwar"):
        convert(1.0, "hardwar", "model", get("gpt-1.3b"), 2048)
