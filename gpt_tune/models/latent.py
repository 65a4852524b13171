"""Owns counting parameters of models with multi-head latent attention (DeepSeek-V2 and V3), which are not planned.

Counted from the modules of the published modelling code; multi-token prediction layers, which a checkpoint may carry
beside the model, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = ("deepseek_v2", "deepseek_v3", "kimi_k2")
_NEEDED = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"),
    *("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
)


def parameters(config: Mapping[str, Any]) -> int | None:
    """All parameters of a config.json with latent attention; None when it lacks a key or holds no whole numbers."""
    n = {key: _whole(config.get(key)) for key in _NEEDED}
    if any(value is None or value < 1 for value in n.values()):
        return None
    h, layers, vocab = (n[key] or 0 for key in ("hidden_size", "num_hidden_layers", "vocab_size"))
    dense = min(_whole(config.get("first_k_dense_replace")) or 0, layers)
    sparse = _experts(config, h)
    if sparse is None:
        dense = layers
    mlp = 3 * h * (n["intermediate_size"] or 0)
    layer = _attention(config, n) + 2 * h
    tables = vocab * h * (1 if config.get("tie_word_embeddings") is True else 2)
    return layers * layer + dense * mlp + (layers - dense) * (sparse or 0) + tables + h


def _attention(config: Mapping[str, Any], n: Mapping[str, int | None]) -> int:
    """Low-rank queries (where the model has them), low-rank keys and values, and the output."""
    h, heads, rank = (n[key] or 0 for key in ("hidden_size", "num_attention_heads", "kv_lora_rank"))
    plain, turned, value = (n[key] or 0 for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    low = _whole(config.get("q_lora_rank"))
    width = heads * (plain + turned)
    query = h * low + low + low * width if low else h * width
    keys = h * (rank + turned) + rank + rank * heads * (plain + value)
    return query + keys + heads * value * h


def _experts(config: Mapping[str, Any], hidden: int) -> int | None:
    """Experts, shared ones and the router of one layer; None for a dense model."""
    count, width = _whole(config.get("n_routed_experts")), _whole(config.get("moe_intermediate_size"))
    if not count or not width:
        return None
    shared = _whole(config.get("n_shared_experts")) or 0
    # V3's router has a correction bias for each expert.
    bias = (
        count if config.get("topk_method") == "noaux_tc" or config.get("model_type") == "deepseek_v3" else 0
    )
    return 3 * hidden * width * (count + shared) + hidden * count + bias


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
