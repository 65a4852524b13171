"""Owns reading a Hugging Face `config.json` into a model shape, one small table entry per architecture."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpt_tune.errors import UserError, nearest
from gpt_tune.models import latent, rope
from gpt_tune.models.check import whole_number
from gpt_tune.models.fields import from_fields
from gpt_tune.models.shape import ModelShape
from gpt_tune.words import count_words

Config = Mapping[str, Any]
Fields = dict[str, Any]

# What a config.json leaves out when it equals the default of its architecture's configuration class.
_LLAMA = {
    "gated_mlp": True,
    "norm": "rmsnorm",
    "linear_bias": False,
    "qkv_bias": False,
    "positions": "rotary",
}


def from_config_file(path: Path) -> ModelShape:
    """The shape a config.json describes. UserError when it is unreadable, unsupported or impossible."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text.", "Give a config.json or a TOML file.") from error
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error}.", "Check the path and its permissions.") from error
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}.", "Download the file again.") from error
    if not isinstance(config, dict):
        raise UserError(f"{path} holds no JSON object.", "Give the config.json of a language model.")
    name = path.parent.name if path.name == "config.json" else path.stem
    return from_config(config, str(path), name.lower() or "custom")


def from_config(config: Config, where: str, model_id: str) -> ModelShape:
    """The shape a parsed config describes."""
    if "text_config" in config and "hidden_size" not in config:
        # A multimodal wrapper: the language model inside is what these numbers are about.
        config = config["text_config"]
    kind = str(config.get("model_type", "")).lower()
    reader = _READERS.get(kind)
    if reader is None:
        raise _unsupported(kind, config, where)
    data = {name: value for name, value in reader(_Reader(config, where)).items() if value is not None}
    return from_fields(data, where, model_id)


def _unsupported(kind: str, config: Config, where: str) -> UserError:
    named = kind or ", ".join(map(str, config.get("architectures") or ())) or "no model_type"
    if kind in latent.KINDS:
        count = latent.parameters(config)
        size = f" (its {count_words(count)} parameters are counted)" if count else ""
        return UserError(
            f"{named!r} of {where} has multi-head latent attention, whose memory and time are not modelled{size}.",
            "A decoder of about the same shape can be given as layers=..,hidden=..,heads=..,experts=..",
        )
    close = nearest(named, _READERS)
    hint = f"Supported: {', '.join(sorted(_READERS))}."
    if close:
        hint = f"The nearest is {close!r}. {hint}"
    return UserError(
        f"The architecture {named!r} of {where} is not supported.",
        hint + " Any decoder can be given as layers=..,hidden=..,heads=..",
    )


class _Reader:
    """Typed access to a config with the file's name in every complaint."""

    def __init__(self, config: Config, where: str) -> None:
        self.config = config
        self.where = where

    def number(self, *keys: str, default: int | None = None) -> int:
        """The first of these keys that is present and not null."""
        for key in keys:
            if self.config.get(key) is not None:
                return whole_number(self.config[key], key, self.where)
        if default is None:
            raise UserError(f"{self.where} lacks {keys[0]!r}.", "Give the model's complete config.json.")
        return default

    def rope(self, theta: float = 10000.0, share: float = 1.0) -> Fields:
        """Rotary positions; transformers 5 puts all of it under rope_parameters."""
        inner = self.config.get("rope_parameters")
        inner = inner if isinstance(inner, Mapping) else {}
        scaling = self.config.get("rope_scaling")
        scaling = scaling if isinstance(scaling, Mapping) else inner

        def first(*names: str) -> Any:
            found = (self.config.get(n, inner.get(n)) for n in names)
            return next((v for v in found if v is not None), None)

        return {
            "rope_theta": first("rope_theta", "rotary_emb_base") or theta,
            "rotary_share": first("partial_rotary_factor", "rotary_pct") or share,
            "rope_scaling": rope.written(scaling),
        }

    def flag(self, key: str, default: bool) -> bool:
        value = self.config.get(key, default)
        if not isinstance(value, bool):
            raise UserError(f"{key} of {self.where} is {value!r}.", "Use true or false.")
        return value


def _llama_like(
    r: _Reader, *, tied: bool = False, seq: int | None = 4096, attention_bias: bool | None = None
) -> Fields:
    heads = r.number("num_attention_heads")
    bias = r.flag("attention_bias", False) if attention_bias is None else attention_bias
    return {
        **_LLAMA,
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


def _llama(r: _Reader) -> Fields:
    # attention_bias and mlp_bias add biases to the row-parallel matrices too, which linear_bias stands for.
    both = r.flag("attention_bias", False) and r.flag("mlp_bias", False)
    if r.flag("attention_bias", False) != r.flag("mlp_bias", False):
        raise UserError(
            f"{r.where} has a bias on only one of attention and MLP, which is not supported.",
            "Give the model as layers=..,hidden=..,heads=.. with the nearest settings.",
        )
    return {**_llama_like(r), "linear_bias": both}


def _qwen2(r: _Reader) -> Fields:
    return _llama_like(r, attention_bias=True, seq=32768)


def _qwen3(r: _Reader) -> Fields:
    return {**_llama_like(r, seq=32768), "qk_norm": True, "head_size": r.number("head_dim", default=128)}


def _experts(r: _Reader, count_key: str, width_key: str) -> Fields:
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


def _mixtral(r: _Reader) -> Fields:
    return {**_llama_like(r), **_experts(r, "num_local_experts", "intermediate_size")}


def _qwen2_moe(r: _Reader) -> Fields:
    shared = {"shared_expert_ffn": r.number("shared_expert_intermediate_size"), "shared_expert_gate": True}
    return {**_qwen2(r), **_experts(r, "num_experts", "moe_intermediate_size"), **shared}


def _qwen3_moe(r: _Reader) -> Fields:
    return {**_qwen3(r), **_experts(r, "num_experts", "moe_intermediate_size")}


def _gemma(r: _Reader) -> Fields:
    return _llama_like(r, tied=True, seq=8192)


def _gemma2(r: _Reader) -> Fields:
    return {**_gemma(r), "norms_per_layer": 4}


def _gemma3(r: _Reader) -> Fields:
    # The 4B model's file leaves out what equals these defaults of Gemma3TextConfig.
    defaults = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208}
    whole = _Reader({**defaults, **r.config}, r.where)
    return {**_gemma(whole), "norms_per_layer": 4, "qk_norm": True}


def _nemotron(r: _Reader) -> Fields:
    return {**_llama_like(r), "gated_mlp": False, "norm": "layernorm", **r.rope(share=0.5)}


def _gpt(r: _Reader) -> Fields:
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


def _bigcode(r: _Reader) -> Fields:
    return {**_gpt(r), "kv_heads": 1 if r.flag("multi_query", True) else None}


def _neox(r: _Reader) -> Fields:
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


def _bloom(r: _Reader) -> Fields:
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


def _opt(r: _Reader) -> Fields:
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


def _falcon(r: _Reader) -> Fields:
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


_READERS: dict[str, Callable[[_Reader], Fields]] = {
    "bloom": _bloom,
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt,
    "gpt_bigcode": _bigcode,
    "gpt_neox": _neox,
    "llama": _llama,
    "mistral": _llama_like,
    "mixtral": _mixtral,
    "nemotron": _nemotron,
    "opt": _opt,
    "phi3": _llama_like,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}
