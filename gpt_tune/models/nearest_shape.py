"""Owns the nearest shape that can be planned to a config.json of an architecture that is not supported, as one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_tune.errors import UserError
from gpt_tune.models.fields import parse_inline

# Our field and the names that configurations give it, the commonest first.
_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "ffn": ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "seq_length": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts"),
    "experts_per_token": ("num_experts_per_tok",),
    "expert_ffn": ("moe_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
}

_OF_EXPERTS = ("experts_per_token", "expert_ffn", "dense_layers", "shared_expert_ffn")
# Tokens of most published training of models that take far longer texts: Llama 3, DeepSeek and Gemma 2 state it.
USUAL_LENGTH = 8192


def in_words(config: Mapping[str, Any]) -> str:
    """`layers=..,hidden=..,heads=..,...` of what a config says; "" when that says too little or is no shape."""
    found: dict[str, Any] = {}
    for field, names in _NAMES.items():
        value = next((config[n] for n in names if config.get(n) is not None), None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            found[field] = value
    shared = config.get("n_shared_experts")
    if (
        isinstance(shared, int)
        and not isinstance(shared, bool)
        and 0 < shared < 100
        and "expert_ffn" in found
    ):
        found["shared_expert_ffn"] = shared * found["expert_ffn"]
    found["seq_length"] = min(found.get("seq_length", USUAL_LENGTH), USUAL_LENGTH)
    if "experts" not in found:
        found = {k: v for k, v in found.items() if k not in _OF_EXPERTS}
    if config.get("rms_norm_eps") is not None:
        found |= {"norm": "rmsnorm", "gated_mlp": "true", "linear_bias": "false", "tied_embeddings": "false"}
    if "rope_theta" in config or "rotary_dim" in config or "partial_rotary_factor" in config:
        found["positions"] = "rotary"
    text = ",".join(f"{key}={value}" for key, value in found.items())
    try:
        parse_inline(text)
    except UserError:
        return ""
    return text
