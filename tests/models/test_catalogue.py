"""Owns tests of finding a model by what a user types."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.models.catalogue import all_models, get, names


def test_there_are_enough_models_with_sources() -> None:
    models = all_models()
    assert len(models) >= 40
    assert all(m.source for m in models)
    assert [m.id for m in models] == names()


def test_ids_and_aliases_are_unique() -> None:
    seen = [key.lower() for m in all_models() for key in (m.id, *m.aliases)]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads"),
    [
        ("gpt-145b", 80, 12288, 96),
        ("aws-gpt-103b", 80, 12288, 96),
        ("AWS-GPT-103B", 80, 12288, 96),
        ("gpt-103b", 57, 12288, 96),
        ("gpt-103b-wide", 80, 10368, 96),
        ("gpt-1t", 128, 25600, 160),
        ("gpt-1.3b", 24, 2048, 16),
        ("gpt-2.7b", 32, 2560, 32),
        ("gpt-6.7b", 32, 4096, 32),
        ("gpt-13b", 40, 5120, 40),
        ("gpt-175b", 96, 12288, 96),
        ("megatron-1.7b", 24, 2304, 24),
        (" llama-3.1-8b ", 32, 4096, 32),
    ],
)
def test_contract_ids(name: str, layers: int, hidden: int, heads: int) -> None:
    model = get(name)
    assert (model.layers, model.hidden, model.heads) == (layers, hidden, heads)


def test_the_mislabelled_model_says_so() -> None:
    assert get("aws-gpt-103b").id == "gpt-145b"
    assert any("145.6B" in n and "not 103B" in n for n in get("gpt-145b").notes)
    assert any("3 and 19" in n for n in get("gpt-103b").notes)


def test_inline_defaults_are_a_plain_gpt() -> None:
    model = get("layers=24,hidden=2048,heads=16")
    assert model.id == "custom-24x2048x16"
    assert (model.kv_heads, model.ffn, model.vocab, model.seq_length) == (16, 8192, 50257, 2048)
    assert model.tied_embeddings
    assert model.positions == "learned"


def test_inline_with_everything() -> None:
    model = get(
        "layers=2, hidden=64, heads=8, kv_heads=2, ffn=128, vocab=1000, seq_length=32, gated_mlp=true,"
        "norm=rmsnorm, linear_bias=false, positions=rotary, tied_embeddings=no, head_size=16"
    )
    assert (model.kv_heads, model.ffn, model.vocab, model.head_size) == (2, 128, 1000, 16)
    assert model.gated_mlp
    assert not model.qkv_bias
    assert not model.tied_embeddings


def test_gated_default_width_is_megatron_deepspeeds() -> None:
    assert get("layers=2,hidden=4096,heads=32,gated_mlp=true").ffn == int(8 * 4096 / 3) // 64 * 64


def test_toml_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('layers = 4\nhidden = 64\nheads = 4\npositions = "rotary"\n')
    assert get(str(path)).id == "mine"
    path.write_text("layers = 4\nhidden = 64\nheads = 4\nwidth = 3\n")
    with pytest.raises(UserError, match="width"):
        get(str(path))
    path.write_text("layers = 4\nhidden = \n")
    with pytest.raises(UserError, match="not valid TOML"):
        get(str(path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("llama-3-8", "llama-3-8b"),
        ("gpt-145", "gpt-145b"),
        ("layers=24,hidden=2048", "heads"),
        ("layers=24,hidden=2048,heads=15", "16 heads"),
        ("layers=24,hidden=2048,heads=0", "below 1"),
        ("layers=-1,hidden=2048,heads=16", "below 1"),
        ("layers=nan,hidden=2048,heads=16", "whole number"),
        ("layers=inf,hidden=2048,heads=16", "whole number"),
        ("layers=1e999,hidden=2048,heads=16", "whole number"),
        ("layers=2.5,hidden=2048,heads=16", "whole number"),
        ("layers=24,hidden=2048,heads=16,kv_heads=3", "2 "),
        ("layers=24,hidden=2048,heads=16,kv_heads=3", "16 heads"),
        ("layers=24,hidden=2048,heads=16,vocab=0", "vocab"),
        ("layers=24,hidden=2048,heads=16,hiden=4", "hidden"),
        ("layers=24,hidden=2048,heads=16,gated_mlp=maybe", "true or false"),
        ("layers=24,hidden=2048,heads=16,positions=sinus", "learned"),
        ("layers=24,hidden=,heads=16", "KEY=VALUE"),
        ("layers=24,hidden=2048,heads=16,experts=4,experts_per_token=9", "4"),
        ("layers=99999999,hidden=2048,heads=16", "above"),
        ("no/such/config.json", "no model file"),
    ],
)
def test_bad_names_get_one_sentence(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        get(text)
    message = f"{caught.value}"
    assert words in message.rstrip(".") + " "
    assert "Traceback" not in message
    assert "\n" not in message
