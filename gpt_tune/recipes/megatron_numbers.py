"""Owns the numbers of one Megatron-DeepSpeed run: iterations, schedule, checkpoints, data and tokenizer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpt_tune.errors import nearest
from gpt_tune.layouts.layout import Layout
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.schema import Profile, Training

SYNTHETIC = "synthetic"
DEFAULT_ITERATIONS = 50
# Real training without a stated interval: losing more than an hour or so of work is not what people expect.
DEFAULT_SAVE_INTERVAL = 500
_TOKENIZERS = {
    "gpt2": "GPT2BPETokenizer",
    "huggingface": "HFTokenizer",
    "sentencepiece": "GPTSentencePieceTokenizer",
    "null": "NullTokenizer",
}
_NEEDS_MODEL = ("huggingface", "sentencepiece")


@dataclass(frozen=True, slots=True)
class RunNumbers:
    """What a run counts with. save_interval None: nothing is saved. max_positions: rows of learned positions."""

    iterations: int
    warmup: int
    decay: int | None
    seq_length: int
    max_positions: int
    save_interval: int | None
    synthetic: bool


def problems(training: Training) -> list[str]:
    """Sentences about training choices that cannot run."""
    found = _number_problems(training)
    if training.iterations is not None and training.tokens is not None:
        found.append("training.iterations and training.tokens exclude each other; keep one.")
    if training.min_learning_rate > training.learning_rate:
        found.append(
            f"training.min_learning_rate {training.min_learning_rate:g} is above "
            f"training.learning_rate {training.learning_rate:g}."
        )
    return found + _data_problems(training)


def _number_problems(training: Training) -> list[str]:
    at_least_one = {
        "iterations": training.iterations, "tokens": training.tokens, "log_interval": training.log_interval,
        "checkpoint_interval": training.checkpoint_interval, "eval_interval": training.eval_interval,
        "lr_decay_iterations": training.lr_decay_iterations, "seed": training.seed,
        "global_batch_size": training.global_batch_size,
    }  # fmt: skip
    at_least_zero = {
        "learning_rate": training.learning_rate, "min_learning_rate": training.min_learning_rate,
        "lr_warmup_iterations": training.lr_warmup_iterations, "weight_decay": training.weight_decay,
        "gradient_clipping": training.gradient_clipping, "eval_iterations": training.eval_iterations,
        "init_std": training.init_std,
    }  # fmt: skip
    found = [
        f"training.{k} is {v:g}; it must be at least 1."
        for k, v in at_least_one.items()
        if v is not None and v < 1
    ]
    found += [f"training.{k} is {v:g}; it must not be negative." for k, v in at_least_zero.items() if v < 0]
    shares = {
        "dropout": training.dropout,
        "adam_beta1": training.adam_beta1,
        "adam_beta2": training.adam_beta2,
    }
    found += [
        f"training.{k} is {v:g}; it must be from 0 to below 1." for k, v in shares.items() if not 0 <= v < 1
    ]
    return found


def _data_problems(training: Training) -> list[str]:
    if training.tokenizer not in _TOKENIZERS:
        close = nearest(training.tokenizer, _TOKENIZERS)
        hint = f" Did you mean {close!r}?" if close else f" Known: {', '.join(_TOKENIZERS)}."
        return [f"Unknown tokenizer {training.tokenizer!r}.{hint}"]
    if training.data == SYNTHETIC:
        return []
    if not training.data:
        return ["training.data is empty; write synthetic, or the prefix of a .bin and .idx file."]
    if training.tokenizer == "gpt2" and not (training.vocab_file and training.merge_file):
        return ["The gpt2 tokenizer needs training.vocab_file and training.merge_file."]
    if training.tokenizer in _NEEDS_MODEL and not training.tokenizer_model:
        return [f"The {training.tokenizer} tokenizer needs training.tokenizer_model."]
    return []


def resolve(profile: Profile, model: ModelShape, layout: Layout) -> RunNumbers:
    """The run's numbers; what the profile leaves open takes its default here."""
    training = profile.training
    seq_length = profile.model.seq_length or model.seq_length
    iterations = training.iterations or DEFAULT_ITERATIONS
    if training.tokens is not None:
        iterations = max(1, math.ceil(training.tokens / (layout.global_batch_size * seq_length)))
    synthetic = training.data == SYNTHETIC
    positions = max(seq_length, model.seq_length) if model.positions == "learned" else seq_length
    return RunNumbers(
        iterations=iterations,
        warmup=training.lr_warmup_iterations,
        decay=training.lr_decay_iterations,
        seq_length=seq_length,
        max_positions=positions,
        save_interval=training.checkpoint_interval or (None if synthetic else DEFAULT_SAVE_INTERVAL),
        synthetic=synthetic,
    )


def tokenizer_flags(training: Training, model: ModelShape) -> list[list[str]]:
    """Tokenizer and its files. Synthetic tokens need none: NullTokenizer adds the end-of-text token itself."""
    if training.data == SYNTHETIC or training.tokenizer == "null":
        return [["--tokenizer-type", "NullTokenizer"], ["--vocab-size", str(model.vocab - 1)]]
    flags = [["--tokenizer-type", _TOKENIZERS[training.tokenizer]]]
    for name, value in (
        ("--vocab-file", training.vocab_file),
        ("--merge-file", training.merge_file),
        ("--tokenizer-model", training.tokenizer_model),
    ):
        if value:
            flags.append([name, value])
    return flags


def training_flags(training: Training) -> list[list[str]]:
    """Optimizer, schedule, regularisation and reporting: what no override touches."""
    values: dict[str, object] = {
        "--lr": training.learning_rate,
        "--min-lr": training.min_learning_rate,
        "--lr-decay-style": training.lr_decay_style,
        "--weight-decay": training.weight_decay,
        "--clip-grad": training.gradient_clipping,
        "--adam-beta1": training.adam_beta1,
        "--adam-beta2": training.adam_beta2,
        "--init-method-std": training.init_std,
        "--attention-dropout": training.dropout,
        "--hidden-dropout": training.dropout,
        "--seed": training.seed,
        "--log-interval": training.log_interval,
        "--eval-interval": training.eval_interval,
        "--eval-iters": training.eval_iterations,
    }
    return [[flag, number(value)] for flag, value in values.items()]


def number(value: object) -> str:
    """A number as the trainer reads it back exactly."""
    return repr(value) if isinstance(value, float) else str(value)


def precision_flags(precision: str) -> list[list[str]]:
    """fp8 is 16-bit weights with fp8 matrix products, through Transformer Engine."""
    if precision == "fp8":
        return [["--bf16"], ["--transformer-impl", "transformer_engine"], ["--fp8-hybrid"]]
    return [] if precision == "fp32" else [[f"--{precision}"]]
