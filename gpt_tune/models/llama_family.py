"""Owns how configs of Llama's descendants become fields: RMSNorm, gated MLP, rotary positions, few biases."""

from __future__ import annotations

from collections.abc import Callable

from gpt_tune.errors import UserError
from gpt_tune.models.config_reader import ConfigReader, Fields

# What a config.json leaves out when it equals the default of its architecture's configuration class.
LLAMA = {
    "gated_mlp": True,
    "norm": "rmsnorm",
    "linear_bias": False,
    "qkv_bias": False,
    "positions": "rotary",
}


def llama_like(
    r: ConfigReader, *, tied: bool = False, seq: int | None = 4096, attention_bias: bool | None = None
) -> Fields:
    heads = r.number("num_attention_heads")
    bias = r.flag("attention_bias", False) if attention_bias is None else attention_bias
    return {
        **LLAMA,
        "layers": r.number("num_hidden_layers"),
        "hidden": r.number("hidden_size"),
        "heads": heads,
        "kv_heads": r.number("num_key_value_heads", default=heads),
        "head_size": r.number("head_dim", default=0) if r.config.get("head_dim") else None,
        "ffn": r.number("intermediate_size"),
        "vocab": r.number("vocab_size"),
        "seq_length": r.number("max_position_embeddings", default=seq),
        "qkv_bias": bias,
        "tied_embeddings": r.flag("tie_word_embeddings", tied),
        **r.rope(),
    }


def _llama(r: ConfigReader) -> Fields:
    # attention_bias and mlp_bias add biases to the row-parallel matrices too, which linear_bias stands for.
    both = r.flag("attention_bias", False) and r.flag("mlp_bias", False)
    if r.flag("attention_bias", False) != r.flag("mlp_bias", False):
        raise UserError(
            f"{r.where} has a bias on only one of attention and MLP, which is not supported.",
            "Give the model as layers=..,hidden=..,heads=.. with the nearest settings.",
        )
    return {**llama_like(r), "linear_bias": both}


def _qwen2(r: ConfigReader) -> Fields:
    return llama_like(r, attention_bias=True, seq=32768)


def _qwen3(r: ConfigReader) -> Fields:
    return {**llama_like(r, seq=32768), "qk_norm": True, "head_size": r.number("head_dim", default=128)}


def experts(r: ConfigReader, count_key: str, width_key: str) -> Fields:
    if r.config.get("decoder_sparse_step", 1) != 1 or r.config.get("mlp_only_layers"):
        raise UserError(
            f"{r.where} has experts only in some layers, which is not supported.",
            "Only experts in every layer (after the first dense ones) can be planned.",
        )
    return {
        "experts": r.number(count_key),
        "experts_per_token": r.number("num_experts_per_tok", default=2),
        "expert_ffn": r.number(width_key, "intermediate_size"),
    }


def _mixtral(r: ConfigReader) -> Fields:
    return {**llama_like(r), **experts(r, "num_local_experts", "intermediate_size")}


def _qwen2_moe(r: ConfigReader) -> Fields:
    shared = {"shared_expert_ffn": r.number("shared_expert_intermediate_size"), "shared_expert_gate": True}
    return {**_qwen2(r), **experts(r, "num_experts", "moe_intermediate_size"), **shared}


def _qwen3_moe(r: ConfigReader) -> Fields:
    return {**_qwen3(r), **experts(r, "num_experts", "moe_intermediate_size")}


def _gemma(r: ConfigReader) -> Fields:
    return llama_like(r, tied=True, seq=8192)


def _gemma2(r: ConfigReader) -> Fields:
    return {**_gemma(r), "norms_per_layer": 4}


def _gemma3(r: ConfigReader) -> Fields:
    # The 4B model's file leaves out what equals these defaults of Gemma3TextConfig.
    defaults = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208}
    whole = ConfigReader({**defaults, **r.config}, r.where)
    return {**_gemma(whole), "norms_per_layer": 4, "qk_norm": True}


def _nemotron(r: ConfigReader) -> Fields:
    return {**llama_like(r), "gated_mlp": False, "norm": "layernorm", **r.rope(share=0.5)}


READERS: dict[str, Callable[[ConfigReader], Fields]] = {
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "llama": _llama,
    "mistral": llama_like,
    "mixtral": _mixtral,
    "nemotron": _nemotron,
    "phi3": llama_like,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}
