"""Owns how Megatron-LM is told a model, its data and its precision, and the shapes its GPT cannot build."""

from __future__ import annotations

from gpt_tune.models import rope
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.schema import Training
from gpt_tune.recipes import megatron_numbers
from gpt_tune.recipes.megatron_numbers import SYNTHETIC

# Megatron-LM d98e8a6, megatron/core/models/common/embeddings/rotary_pos_embedding.py: the rest of Llama 3's scaling is
# fixed there, the factor alone is an option.
_SCALING = (1.0, 4.0, 8192.0)
_TOKENIZERS = {
    "gpt2": "GPT2BPETokenizer",
    "huggingface": "HuggingFaceTokenizer",
    "sentencepiece": "GPTSentencePieceTokenizer",
    "null": "NullTokenizer",
}


def problems(model: ModelShape) -> list[str]:
    """Sentences about what this model has and Megatron-Core's GPT lacks."""
    found = []
    if model.embedding_norm:
        found.append(f"{model.id} has a norm after the embedding, which Megatron-LM cannot.")
    if model.positions == "alibi":
        found.append(f"{model.id} uses ALiBi positions, which Megatron-LM cannot.")
    if model.norms_per_layer not in (0, 2):
        found.append(f"{model.id} has {model.norms_per_layer} norms a layer; Megatron-LM's GPT has 2.")
    if model.positions == "rotary":
        found += _rotary_problems(model)
    return found


def _rotary_problems(model: ModelShape) -> list[str]:
    scaling = rope.parse(model.rope_scaling, model.id)
    found = []
    if model.rope_theta != int(model.rope_theta):
        found.append(f"{model.id} has the rotary base {model.rope_theta:g}; Megatron-LM takes whole numbers.")
    if scaling is not None and (scaling.kind, (scaling.low, scaling.high, scaling.original)) != (
        "llama3",
        _SCALING,
    ):
        found.append(
            f"{model.id} scales its rotary angles by {model.rope_scaling!r}; Megatron-LM's GPT has Llama 3's way only, "
            "with low=1 high=4 original=8192."
        )
    return found


def flags(model: ModelShape) -> list[list[str]]:
    """Flags with values for the shape, except those that a run may override."""
    found = [
        ["--num-layers", str(model.layers)],
        ["--hidden-size", str(model.hidden)],
        ["--num-attention-heads", str(model.heads)],
        ["--ffn-hidden-size", str(model.ffn)],
        ["--normalization", "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm"],
    ]
    if model.kv_heads != model.heads:
        found.append(["--group-query-attention", "--num-query-groups", str(model.kv_heads)])
    if model.head_size * model.heads != model.hidden:
        found.append(["--kv-channels", str(model.head_size)])
    switches = (
        ("--swiglu", model.gated_mlp),
        ("--disable-bias-linear", not model.linear_bias),
        ("--add-qkv-bias", model.qkv_bias and not model.linear_bias),
        ("--qk-layernorm", model.qk_norm),
        ("--untie-embeddings-and-output-weights", not model.tied_embeddings),
    )
    found += [[flag] for flag, wanted in switches if wanted]
    return found + _positions(model) + (_experts(model) if model.moe else [])


def _positions(model: ModelShape) -> list[list[str]]:
    if model.positions == "none":
        return [["--position-embedding-type", "none"]]
    if model.positions != "rotary":
        return [["--position-embedding-type", "learned_absolute"]]
    found = [["--position-embedding-type", "rope"], ["--rotary-base", str(int(model.rope_theta))]]
    if model.rotary_share != 1:
        found.append(["--rotary-percent", repr(float(model.rotary_share))])
    scaling = rope.parse(model.rope_scaling, model.id)
    if scaling is not None:
        found.append(["--use-rope-scaling", "--rope-scaling-factor", repr(scaling.factor)])
    return found


def _experts(model: ModelShape) -> list[list[str]]:
    found = [
        ["--num-experts", str(model.experts)],
        ["--moe-router-topk", str(model.experts_per_token)],
        ["--moe-ffn-hidden-size", str(model.expert_ffn)],
        ["--moe-token-dispatcher-type", "alltoall"],
        ["--moe-router-load-balancing-type", "aux_loss"],
        ["--moe-aux-loss-coeff", "0.01"],
        ["--moe-grouped-gemm"],
    ]
    if model.shared_expert_ffn:
        found.append(["--moe-shared-expert-intermediate-size", str(model.shared_expert_ffn)])
    if model.shared_expert_gate:
        found.append(["--moe-shared-expert-gate"])
    if model.dense_layers:
        dense = model.dense_layers
        found.append(["--moe-layer-freq", f"([0]*{dense}+[1]*{model.layers - dense})"])
    return found


def tokenizer_flags(training: Training, model: ModelShape) -> list[list[str]]:
    """Tokenizer and its files; mock data needs none."""
    if training.data == SYNTHETIC or training.tokenizer == "null":
        return [["--tokenizer-type", "NullTokenizer"], ["--vocab-size", str(model.vocab)]]
    found = [["--tokenizer-type", _TOKENIZERS[training.tokenizer]]]
    files = (
        ("--vocab-file", training.vocab_file),
        ("--merge-file", training.merge_file),
        ("--tokenizer-model", training.tokenizer_model),
    )
    return found + [[flag, path] for flag, path in files if path]


def training_flags(training: Training) -> list[list[str]]:
    """Optimizer, schedule, regularisation and reporting: both trainers' names, and this one's own TFLOPS line."""
    return [*megatron_numbers.training_flags(training), ["--log-throughput"]]


def precision_flags(precision: str) -> list[list[str]]:
    """fp8 is 16-bit weights with fp8 matrix products, through Transformer Engine."""
    if precision == "fp8":
        return [["--bf16"], ["--fp8-format", "hybrid"]]
    return [] if precision == "fp32" else [[f"--{precision}"]]
