"""Owns how configs of GPT's descendants become fields: LayerNorm, plain MLP, mostly with biases."""

from __future__ import annotations

from collections.abc import Callable

from gpt_tune.errors import UserError
from gpt_tune.models.config_reader import ConfigReader, Fields


def _gpt(r: ConfigReader) -> Fields:
    """GPT-2 names its numbers n_layer, n_embd, n_head."""
    hidden = r.number("n_embd")
    return {
        "layers": r.number("n_layer"),
        "hidden": hidden,
        "heads": r.number("n_head"),
        "ffn": r.number("n_inner", default=4 * hidden),
        "vocab": r.number("vocab_size", default=50257),
        "seq_length": r.number("n_positions", "n_ctx", default=1024),
        "tied_embeddings": r.flag("tie_word_embeddings", True),
    }


def _bigcode(r: ConfigReader) -> Fields:
    return {**_gpt(r), "kv_heads": 1 if r.flag("multi_query", True) else None}


def _neox(r: ConfigReader) -> Fields:
    bias = r.flag("attention_bias", True)
    if not bias:
        raise UserError(
            f"{r.where} switches off attention_bias, which is not supported.",
            "Give the model as layers=..,hidden=..,heads=..,qkv_bias=false,...",
        )
    return {
        "layers": r.number("num_hidden_layers"),
        "hidden": r.number("hidden_size"),
        "heads": r.number("num_attention_heads"),
        "ffn": r.number("intermediate_size"),
        "vocab": r.number("vocab_size"),
        "seq_length": r.number("max_position_embeddings", default=2048),
        "positions": "rotary",
        **r.rope(share=0.25),
        "tied_embeddings": r.flag("tie_word_embeddings", False),
    }


def _bloom(r: ConfigReader) -> Fields:
    hidden = r.number("hidden_size", "n_embed")
    return {
        "layers": r.number("n_layer", "num_hidden_layers"),
        "hidden": hidden,
        "heads": r.number("n_head", "num_attention_heads"),
        "ffn": 4 * hidden,
        "vocab": r.number("vocab_size"),
        "seq_length": r.number("seq_length", default=2048),
        "positions": "alibi",
        "embedding_norm": True,
        "tied_embeddings": r.flag("tie_word_embeddings", True),
    }


def _opt(r: ConfigReader) -> Fields:
    hidden = r.number("hidden_size")
    if r.number("word_embed_proj_dim", default=hidden) != hidden:
        raise UserError(
            f"{r.where} projects embeddings of another width ({r.config['word_embed_proj_dim']}) "
            f"to hidden {hidden}, which is not supported.",
            "OPT-350M is the one OPT model built so; any other size works.",
        )
    slots = r.number("max_position_embeddings", default=2048)
    return {
        "layers": r.number("num_hidden_layers"),
        "hidden": hidden,
        "heads": r.number("num_attention_heads"),
        "ffn": r.number("ffn_dim"),
        "vocab": r.number("vocab_size"),
        "seq_length": slots,
        # OPT's position table starts at offset 2.
        "position_slots": slots + 2,
        "tied_embeddings": r.flag("tie_word_embeddings", True),
    }


def _falcon(r: ConfigReader) -> Fields:
    hidden, heads = r.number("hidden_size"), r.number("num_attention_heads", "n_head")
    new = r.flag("new_decoder_architecture", False)
    multi_query = r.flag("multi_query", True)
    kv_heads = r.number("num_kv_heads", "n_head_kv", default=heads) if new else (1 if multi_query else heads)
    parallel = r.flag("parallel_attn", True)
    bias = r.flag("bias", False)
    return {
        "layers": r.number("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "ffn": r.number("ffn_hidden_size", default=4 * hidden),
        "vocab": r.number("vocab_size"),
        "seq_length": r.number("max_position_embeddings", default=2048),
        "positions": "alibi" if r.flag("alibi", False) else "rotary",
        **r.rope(),
        "linear_bias": bias,
        "qkv_bias": bias,
        "norms_per_layer": r.number("num_ln_in_parallel_attn", default=2) if new else (1 if parallel else 2),
        "tied_embeddings": r.flag("tie_word_embeddings", True),
    }


READERS: dict[str, Callable[[ConfigReader], Fields]] = {
    "bloom": _bloom,
    "falcon": _falcon,
    "gpt2": _gpt,
    "gpt_bigcode": _bigcode,
    "gpt_neox": _neox,
    "opt": _opt,
}
