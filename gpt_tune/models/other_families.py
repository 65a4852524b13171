"""Owns how configs become fields of decoders that name or build things their own way, all counted exactly."""

from __future__ import annotations

from collections.abc import Callable

from gpt_tune.errors import UserError
from gpt_tune.models.config_reader import ConfigReader, Fields
from gpt_tune.models.llama_family import LLAMA, experts, llama_like

# A LayerNorm without shift has as many parameters as an RMSNorm, and takes about its time.
_PLAIN_NORM = {
    "norm": "rmsnorm",
    "notes": ("Its LayerNorm has no bias: it is counted as RMSNorm, which has as many parameters.",),
}


def _granite(r: ConfigReader) -> Fields:
    r.refuse("mlp_bias", False, "The published Granite models have no biases.")
    r.refuse("attention_bias", False, "The published Granite models have no biases.")
    return llama_like(r, tied=False, seq=2048)


def _granite_moe(r: ConfigReader) -> Fields:
    return {**_granite(r), **experts(r, "num_local_experts", "intermediate_size")}


def _smollm3(r: ConfigReader) -> Fields:
    return llama_like(r, tied=True, seq=32768)


def _internlm2(r: ConfigReader) -> Fields:
    r.refuse("bias", False, "The published InternLM2 models have no biases.")
    return llama_like(r, seq=32768)


def _baichuan(r: ConfigReader) -> Fields:
    # The 7B models turn heads; the 13B ones, whose config has model_max_length instead, use ALiBi.
    turned = r.config.get("max_position_embeddings") is not None
    seq = r.number("max_position_embeddings", "model_max_length", default=4096)
    return {**llama_like(r, seq=seq), "positions": "rotary" if turned else "alibi"}


def _glm(r: ConfigReader) -> Fields:
    return {**llama_like(r, seq=131072), **r.rope(share=0.5)}


def _glm4(r: ConfigReader) -> Fields:
    return {**_glm(r), "norms_per_layer": 4}


def _chatglm(r: ConfigReader) -> Fields:
    hidden, heads = r.number("hidden_size"), r.number("num_attention_heads")
    r.refuse("add_bias_linear", False, "The published ChatGLM2, 3 and GLM-4 models have none.")
    r.refuse("rmsnorm", True, "The published ChatGLM2, 3 and GLM-4 models use RMSNorm.")
    grouped = r.flag("multi_query_attention", False)
    return {
        **LLAMA,
        "layers": r.number("num_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": r.number("multi_query_group_num") if grouped else heads,
        "head_size": r.number("kv_channels", default=hidden // heads),
        "ffn": r.number("ffn_hidden_size"),
        "vocab": r.number("padded_vocab_size", "vocab_size"),
        "seq_length": r.number("seq_length", default=2048),
        "qkv_bias": r.flag("add_qkv_bias", True),
        "tied_embeddings": r.flag("tie_word_embeddings", False),
        **r.rope(share=0.5),
    }


def _qwen(r: ConfigReader) -> Fields:
    """The first Qwen: intermediate_size counts gate and up together."""
    width = r.number("intermediate_size")
    if width % 2:
        raise UserError(
            f"intermediate_size of {r.where} is {width}, of which gate and up cannot have a half each.",
            f"Give an even number, such as {width + 1}.",
        )
    return {**llama_like(r, seq=8192, attention_bias=True), "ffn": width // 2}


def _cohere(r: ConfigReader) -> Fields:
    r.refuse("use_qk_norm", False, "Command R+ norms each query and key head by its own weights.")
    r.refuse("attention_bias", False, "The published Command R models have no biases.")
    # Attention and MLP share one norm.
    return {**llama_like(r, tied=True, seq=8192), **_PLAIN_NORM, "norms_per_layer": 1}


def _deepseek(r: ConfigReader) -> Fields:
    """DeepSeekMoE 16B: plain attention, shared experts, the first layers dense."""
    width = r.number("moe_intermediate_size")
    shared = r.number("n_shared_experts", default=0) if r.config.get("n_shared_experts") else 0
    first = r.config.get("first_k_dense_replace") or 0
    if r.config.get("moe_layer_freq", 1) != 1:
        raise UserError(
            f"{r.where} has experts only in some layers, which is not supported.",
            "Only experts in every layer (after the first dense ones) can be planned.",
        )
    return {
        **llama_like(r, seq=4096),
        **experts(r, "n_routed_experts", "moe_intermediate_size"),
        "shared_expert_ffn": shared * width,
        "dense_layers": first,
    }


def _llama4(r: ConfigReader) -> Fields:
    """Llama 4 Scout: experts in every layer, one of them shared; its norms of queries and keys have no weights."""
    if r.number("interleave_moe_layer_step", default=1) != 1:
        raise UserError(
            f"{r.where} has experts only in some layers, which is not supported.",
            "Of the Llama 4 models Scout has them in every layer.",
        )
    r.refuse("attention_bias", False, "The published Llama 4 models have no biases.")
    return {
        **llama_like(r, seq=131072),
        "experts": r.number("num_local_experts", default=16),
        "experts_per_token": r.number("num_experts_per_tok", default=1),
        "expert_ffn": r.number("intermediate_size"),
        "shared_expert_ffn": r.number("intermediate_size"),
    }


def _gpt_neo(r: ConfigReader) -> Fields:
    """Query, key and value without biases, all else with them."""
    hidden = r.number("hidden_size")
    return {
        "layers": r.number("num_layers"),
        "hidden": hidden,
        "heads": r.number("num_heads"),
        "ffn": r.number("intermediate_size", default=4 * hidden),
        "vocab": r.number("vocab_size"),
        "seq_length": r.number("max_position_embeddings", default=2048),
        "qkv_bias": False,
        "tied_embeddings": r.flag("tie_word_embeddings", True),
    }


def _starcoder2(r: ConfigReader) -> Fields:
    r.refuse("use_bias", True, "The published StarCoder2 models have biases throughout.")
    plain = {"gated_mlp": False, "norm": "layernorm", "linear_bias": True, "qkv_bias": True}
    return {**llama_like(r, tied=True, seq=4096), **plain}


def _stablelm(r: ConfigReader) -> Fields:
    r.refuse("qk_layernorm", False, "StableLM 2 12B norms each query and key head by its own weights.")
    return {
        **llama_like(r, seq=4096, attention_bias=r.flag("use_qkv_bias", False)),
        "norm": "layernorm",
        "norms_per_layer": 1 if r.flag("use_parallel_residual", False) else 2,
        **r.rope(share=0.25),
    }


def _mpt(r: ConfigReader) -> Fields:
    r.refuse("no_bias", True, "The published MPT models have no biases.")
    hidden, attention = r.number("d_model"), r.inside("attn_config")
    alibi = attention.flag("alibi", False)
    return {
        **_PLAIN_NORM,
        "layers": r.number("n_layers"),
        "hidden": hidden,
        "heads": r.number("n_heads"),
        "kv_heads": attention.number("kv_n_heads", default=r.number("n_heads")),
        "ffn": r.number("expansion_ratio", default=4) * hidden,
        "vocab": r.number("vocab_size"),
        "seq_length": r.number("max_seq_len", default=2048),
        "linear_bias": False,
        "qkv_bias": False,
        "positions": "alibi" if alibi else "learned",
        "tied_embeddings": r.flag("tie_word_embeddings", True),
    }


def _dbrx(r: ConfigReader) -> Fields:
    attention, ffn = r.inside("attn_config"), r.inside("ffn_config")
    width = ffn.number("ffn_hidden_size")
    return {
        **LLAMA,
        **_PLAIN_NORM,
        "layers": r.number("n_layers"),
        "hidden": r.number("d_model"),
        "heads": r.number("n_heads"),
        "kv_heads": attention.number("kv_n_heads", default=1),
        "ffn": width,
        "experts": ffn.number("moe_num_experts", default=4),
        "experts_per_token": ffn.number("moe_top_k", default=1),
        "expert_ffn": width,
        "vocab": r.number("vocab_size"),
        "seq_length": r.number("max_seq_len", default=2048),
        "tied_embeddings": r.flag("tie_word_embeddings", False),
        "rope_theta": attention.number("rope_theta", default=10000),
    }


READERS: dict[str, Callable[[ConfigReader], Fields]] = {
    "baichuan": _baichuan,
    "chatglm": _chatglm,
    "cohere": _cohere,
    "cohere2": _cohere,
    "dbrx": _dbrx,
    "deepseek": _deepseek,
    "glm": _glm,
    "glm4": _glm4,
    "gpt_neo": _gpt_neo,
    "granite": _granite,
    "granitemoe": _granite_moe,
    "internlm2": _internlm2,
    "llama4_text": _llama4,
    "mpt": _mpt,
    "qwen": _qwen,
    "smollm3": _smollm3,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
}
