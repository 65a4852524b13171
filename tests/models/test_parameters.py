"""Owns tests of parameter counts: against published totals, and against a count tensor by tensor."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_tune.layouts.stages import first_layer_of_stage, layers_of_stage
from gpt_tune.models import parameters
from gpt_tune.models.catalogue import all_models, get
from gpt_tune.models.shape import ModelShape
from tests.models import tensors
from tests.models.shapes import model_shapes

# Printed by `sum(p.numel() for p in model.parameters())` of the public checkpoints.
PUBLIC = {
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "bloom-176b": 176_247_271_424,
    "gpt-neox-20b": 20_554_567_680,
}


@pytest.mark.parametrize(("name", "count"), PUBLIC.items())
def test_public_totals(name: str, count: int) -> None:
    assert parameters.total(get(name)) == count


@pytest.mark.parametrize("model", all_models(), ids=lambda m: m.id)
def test_catalogue_counts_agree_with_tensors(model: ModelShape) -> None:
    small = replace(model, layers=min(model.layers, 3), dense_layers=min(model.dense_layers, 2))
    assert parameters.total(small) == tensors.count(tensors.whole_model(small))
    if model.public_total:
        assert parameters.total(model) == model.public_total


def test_the_seed_shape_is_not_103b() -> None:
    assert parameters.total(get("gpt-145b")) == 145_610_674_176
    assert 103.8e9 < parameters.total(get("gpt-103b")) < 104.0e9
    assert 103.6e9 < parameters.total(get("gpt-103b-wide")) < 103.9e9
    assert 1.007e12 < parameters.total(get("gpt-1t")) < 1.009e12


def test_active_parameters_of_mixtures() -> None:
    # Mixtral's paper says 13B active of 47B; Qwen3's names say 3B and 22B.
    assert parameters.active(get("mixtral-8x7b")) == pytest.approx(12.9e9, rel=0.01)
    assert parameters.active(get("qwen3-30b-a3b")) == pytest.approx(3.3e9, rel=0.03)
    assert parameters.active(get("qwen3-235b-a22b")) == pytest.approx(22e9, rel=0.02)
    dense = get("llama-3-8b")
    assert parameters.active(dense) == parameters.total(dense)


@pytest.mark.parametrize(("t", "padded"), [(1, 50304), (2, 50432), (4, 50688), (8, 51200)])
def test_vocabulary_padding(t: int, padded: int) -> None:
    gpt = get("gpt-1.3b")
    assert parameters.padded_vocab(gpt, t) == padded
    assert parameters.padded_vocab(gpt, np.array([t])).tolist() == [padded]


@given(model_shapes())
def test_total_counts_every_tensor_once(model: ModelShape) -> None:
    assert parameters.total(model) == tensors.count(tensors.whole_model(model))


@given(model_shapes(), st.integers(1, 4), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]))
@settings(max_examples=60)
def test_a_rank_holds_its_slice_of_each_tensor(model: ModelShape, p: int, t: int, ep: int) -> None:
    """Stage by stage, `on_rank` equals the tensors of its layers and ends divided as they are split."""
    p = min(p, model.layers)
    stage = np.arange(p)
    n = layers_of_stage(model.layers, p, stage)
    start = first_layer_of_stage(model.layers, p, stage)
    found = parameters.on_rank(model, t, n, stage == 0, stage == p - 1, ep, start)
    padded = replace(model, vocab=parameters.padded_vocab(model, t))
    everything = tensors.whole_model(padded)
    for i in range(p):
        mine = {
            k: v
            for k, v in everything.items()
            if k.startswith("layer") and start[i] <= int(k[5:].split(".")[0]) < start[i] + n[i]
        }
        if i == 0:
            mine |= {
                k: v
                for k, v in everything.items()
                if k.split(".")[0] in ("words", "positions", "embedding_norm")
            }
        if i == p - 1:
            mine |= {k: v for k, v in everything.items() if k.split(".")[0] in ("final_norm", "head")}
            if model.tied_embeddings and p > 1:
                mine["copy"] = everything["words.weight"]
        assert found.total[i] == pytest.approx(tensors.count_on_rank(mine, t, ep), rel=1e-12)


@given(model_shapes(), st.integers(1, 6))
def test_more_tensor_parallelism_never_holds_more(model: ModelShape, p: int) -> None:
    """Padding included: a rank's rows of the padded vocabulary never grow either."""
    p = min(p, model.layers)
    stage = np.arange(p)
    n = layers_of_stage(model.layers, p, stage)
    held = [parameters.on_rank(model, t, n, stage == 0, stage == p - 1).total for t in (1, 2, 4, 8, 16)]
    for fewer, more in pairwise(held):
        assert np.all(more <= fewer)


def test_learned_positions_grow_with_a_longer_sequence() -> None:
    gpt = get("gpt-1.3b")
    assert parameters.position_rows(gpt) == 2048
    assert parameters.position_rows(gpt, 4096) == 4096
    assert parameters.position_rows(gpt, 512) == 2048
    assert parameters.position_rows(get("llama-3-8b"), 4096) == 0
    assert parameters.position_rows(get("opt-1.3b")) == 2050
