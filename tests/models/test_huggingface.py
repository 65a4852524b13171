"""Owns tests of reading config.json files: the fields are those of the public files, exact totals follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.errors import UserError
from gpt_tune.models import latent
from gpt_tune.models.catalogue import get
from gpt_tune.models.parameters import total
from gpt_tune.words import count_words

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
CONFIGS: list[tuple[dict[str, Any], int]] = [
    (LLAMA, 8_030_261_248),
    ({**LLAMA, "model_type": "mistral", "vocab_size": 32000, "head_dim": None}, 7_241_732_096),
    (
        {
            "model_type": "mixtral",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 32000,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        46_702_792_704,
    ),
    (
        {
            "model_type": "qwen2",
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
        },
        7_615_616_512,
    ),
    (
        {
            "model_type": "qwen3",
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 151936,
        },
        8_190_735_360,
    ),
    (
        {
            "model_type": "qwen3_moe",
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "vocab_size": 151936,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
        30_532_122_624,
    ),
    (
        {
            "model_type": "qwen2_moe",
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "vocab_size": 151936,
        },
        14_315_784_192,
    ),
    (
        {
            "model_type": "gpt2",
            "n_embd": 1600,
            "n_layer": 48,
            "n_head": 25,
            "n_positions": 1024,
            "vocab_size": 50257,
        },
        1_557_611_200,
    ),
    (
        {
            "model_type": "gpt_neox",
            "hidden_size": 6144,
            "intermediate_size": 24576,
            "num_hidden_layers": 44,
            "num_attention_heads": 64,
            "vocab_size": 50432,
        },
        20_554_567_680,
    ),
    (
        {
            "model_type": "bloom",
            "n_embed": 14336,
            "n_layer": 70,
            "num_attention_heads": 112,
            "vocab_size": 250880,
        },
        176_247_271_424,
    ),
    (
        {
            "model_type": "opt",
            "hidden_size": 2048,
            "ffn_dim": 8192,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "vocab_size": 50272,
            "max_position_embeddings": 2048,
        },
        1_315_758_080,
    ),
    (
        {
            "model_type": "falcon",
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "multi_query": True,
            "parallel_attn": True,
            "bias": False,
            "vocab_size": 65024,
        },
        6_921_720_704,
    ),
    (
        {
            "model_type": "phi3",
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "vocab_size": 32064,
        },
        3_821_079_552,
    ),
    (
        {
            "model_type": "gemma",
            "hidden_size": 3072,
            "intermediate_size": 24576,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "head_dim": 256,
            "vocab_size": 256000,
        },
        8_537_680_896,
    ),
    (
        {
            "model_type": "gemma2",
            "hidden_size": 3584,
            "intermediate_size": 14336,
            "num_hidden_layers": 42,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 256,
            "vocab_size": 256000,
        },
        9_241_705_984,
    ),
]


def write(folder: Path, config: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("config", "count"), CONFIGS, ids=lambda x: x["model_type"] if isinstance(x, dict) else ""
)
def test_exact_totals(tmp_path: Path, config: dict[str, Any], count: int) -> None:
    assert total(get(write(tmp_path, config))) == count


def test_gemma_3_leaves_out_its_defaults(tmp_path: Path) -> None:
    """google/gemma-3-4b: its text model has 3.88 B parameters."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
    }
    model = get(write(tmp_path, {"model_type": "gemma3", "text_config": text}))
    assert (model.heads, model.kv_heads, model.head_size, model.vocab) == (8, 4, 256, 262208)
    assert total(model) == pytest.approx(3.88e9, rel=0.002)


def test_the_folder_stands_for_its_config(tmp_path: Path) -> None:
    folder = tmp_path / "My-Llama"
    folder.mkdir()
    write(folder, LLAMA)
    assert get(str(folder)).id == "my-llama"


def test_a_multimodal_wrapper_is_read_inside(tmp_path: Path) -> None:
    wrapped = {"model_type": "mllama", "text_config": LLAMA}
    assert total(get(write(tmp_path, wrapped))) == 8_030_261_248


@pytest.mark.parametrize("kind", ["t5", "gpt_oss", "bert", "mamba", ""])
def test_unsupported_architectures_are_named(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, {**LLAMA, "model_type": kind, "architectures": ["OddForCausalLM"]})
    with pytest.raises(UserError) as caught:
        get(path)
    text = str(caught.value)
    assert (kind or "OddForCausalLM") in text
    assert "llama" in text
    assert "mixtral" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": "wide"}, "whole number"),
        ({"num_hidden_layers": -3}, "below 1"),
        ({"vocab_size": float("nan")}, "whole number"),
        ({"num_attention_heads": 33, "num_key_value_heads": 33}, "33 heads"),
        ({"num_key_value_heads": 5}, "5 key-value heads"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"attention_bias": True}, "bias"),
    ],
)
def test_broken_configs(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        get(write(tmp_path, {**LLAMA, **change}))


def test_not_json(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for content, words in (("{", "not valid JSON"), ("[1]", "no JSON object")):
        path.write_text(content)
        with pytest.raises(UserError, match=words):
            get(str(path))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is not text"):
        get(str(path))


DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "first_k_dense_replace": 3, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK_V2 = {
    **DEEPSEEK_V3, "model_type": "deepseek_v2", "hidden_size": 5120, "num_hidden_layers": 60, "vocab_size": 102400,
    "intermediate_size": 12288, "moe_intermediate_size": 1536, "n_routed_experts": 160, "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}  # fmt: skip
DEEPSEEK_V2_LITE = {
    **DEEPSEEK_V2, "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16, "q_lora_rank": None,
    "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "billions"),
    [(DEEPSEEK_V3, 671.0), (DEEPSEEK_V2, 235.7), (DEEPSEEK_V2_LITE, 15.7)],
    ids=["v3", "v2", "v2-lite"],
)
def test_latent_attention_is_counted_and_refused_in_one_sentence(
    tmp_path: Path, config: dict[str, Any], billions: float
) -> None:
    """The published sizes: 671B, 236B and 15.7B."""
    assert latent.parameters(config) == pytest.approx(billions * 1e9, rel=0.001)
    with pytest.raises(UserError, match="multi-head latent attention") as caught:
        get(write(tmp_path, config))
    assert f"{count_words(latent.parameters(config) or 0)} parameters" in str(caught.value)


@pytest.mark.parametrize(
    "bad", [{"hidden_size": "wide"}, {"kv_lora_rank": 0}, {"vocab_size": True}, {"v_head_dim": None}]
)
def test_a_broken_latent_config_is_still_refused_in_words(tmp_path: Path, bad: dict[str, Any]) -> None:
    assert latent.parameters({**DEEPSEEK_V3, **bad}) is None
    with pytest.raises(UserError, match="latent attention"):
        get(write(tmp_path, {**DEEPSEEK_V3, **bad}))
