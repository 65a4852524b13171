"""Owns the rules about numbers: what must divide what, under every trainer."""

from __future__ import annotations

import math

import numpy as np

from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.rule import LegalityRule, Mask, Setting, closest, divisors, two_closest

_MDS = "Megatron-DeepSpeed megatron/arguments.py validate_args (4efb479)"
_DIVIDE = "Megatron divide() asserts in tensor_parallel layers and ParallelAttention"


def _gpus(b: LayoutBatch, s: Setting) -> Mask:
    return b.tensor_parallel * b.pipeline_parallel * b.context_parallel * b.data_parallel != s.gpus


def _gpus_words(x: Layout, s: Setting) -> tuple[str, str]:
    group = x.tensor_parallel * x.pipeline_parallel * x.context_parallel
    product = (
        f"TP {x.tensor_parallel} x PP {x.pipeline_parallel} x CP {x.context_parallel} x DP {x.data_parallel}"
    )
    text = f"{product} = {x.gpus} GPUs, but there are {s.gpus}."
    if s.gpus % group == 0:
        return text, f"data_parallel={s.gpus // group}"
    others = x.pipeline_parallel * x.context_parallel
    if s.gpus % others == 0 and s.features.tensor_parallel:
        return text, f"tensor_parallel={closest(_fitting_tensor(s, others), x.tensor_parallel)}"
    stages = [d for d in divisors(s.gpus) if d <= s.model.layers and s.gpus % (d * x.tensor_parallel) == 0]
    if stages and x.context_parallel == 1 and s.features.pipeline_parallel:
        return text, f"pipeline_parallel={closest(stages, x.pipeline_parallel)}"
    return text, f"--gpus {_nearest_gpus(group, s)}"


def _fitting_tensor(s: Setting, others: int) -> list[int]:
    """Legal tensor parallel sizes on a share of the GPUs."""
    return [d for d in legal_tensor_parallel(s) if s.gpus % (d * others) == 0]


def _nearest_gpus(group: int, s: Setting) -> int:
    """The number of GPUs nearest to what there is that the group divides: a part of a node, or whole nodes."""
    per_node = s.node.gpus_per_node
    whole = math.lcm(group, per_node)
    below = s.gpus // whole * whole
    counts = [n for n in (*range(group, per_node + 1, group), below, below + whole) if n > 0]
    return closest(counts, s.gpus)


def _global_batch(b: LayoutBatch, s: Setting) -> Mask:
    return b.micro_batch_size * b.gradient_accumulation_steps * b.data_parallel != b.global_batch_size


def _global_batch_words(x: Layout, s: Setting) -> tuple[str, str]:
    per_step = x.micro_batch_size * x.data_parallel
    text = (
        f"The global batch {x.global_batch_size} is not micro batch {x.micro_batch_size} x accumulation "
        f"{x.gradient_accumulation_steps} x data parallel {x.data_parallel}"
    )
    if x.global_batch_size % per_step == 0:
        return text + ".", f"gradient_accumulation_steps={x.global_batch_size // per_step}"
    text += f", and {x.global_batch_size} is not divisible by {per_step}."
    if x.global_batch_size % x.data_parallel == 0:
        sizes = divisors(x.global_batch_size // x.data_parallel)
        return text, f"micro_batch_size={closest(sizes, x.micro_batch_size)}"
    below = x.global_batch_size // per_step * per_step
    return text, "global_batch_size=" + " or ".join(str(n) for n in (below, below + per_step) if n)


def _heads(b: LayoutBatch, s: Setting) -> Mask:
    return np.asarray(s.model.heads % b.tensor_parallel != 0)


def _heads_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"{s.model.heads} attention heads are not divisible by tensor parallel {x.tensor_parallel}.",
        _tensor_fix(x, s),
    )


def _kv_heads(b: LayoutBatch, s: Setting) -> Mask:
    return np.asarray((s.model.kv_heads % b.tensor_parallel != 0) & (s.model.heads % b.tensor_parallel == 0))


def _kv_heads_words(x: Layout, s: Setting) -> tuple[str, str]:
    return (
        f"{s.model.kv_heads} key-value heads are not divisible by tensor parallel {x.tensor_parallel}.",
        _tensor_fix(x, s),
    )


def _ffn(b: LayoutBatch, s: Setting) -> Mask:
    bad = s.model.ffn % b.tensor_parallel != 0
    if s.model.moe:
        bad = bad | (s.model.expert_ffn % b.tensor_parallel != 0)
        bad = bad | (s.model.shared_expert_ffn % b.tensor_parallel != 0)
    return np.asarray(bad)


def _ffn_words(x: Layout, s: Setting) -> tuple[str, str]:
    widths = [s.model.ffn, *((s.model.expert_ffn, s.model.shared_expert_ffn) if s.model.moe else ())]
    width = next(w for w in widths if w % x.tensor_parallel)
    return f"The MLP width {width} is not divisible by tensor parallel {x.tensor_parallel}.", _tensor_fix(
        x, s
    )


def legal_tensor_parallel(s: Setting) -> list[int]:
    """Tensor parallel sizes that heads, key-value heads, MLP widths and the number of GPUs allow, ascending."""
    m = s.model
    widths = (s.gpus, m.heads, m.kv_heads, m.ffn, *((m.expert_ffn, m.shared_expert_ffn) if m.moe else ()))
    return [d for d in divisors(m.heads) if all(w % d == 0 for w in widths)]


def _tensor_fix(x: Layout, s: Setting) -> str:
    fitting = _fitting_tensor(s, x.pipeline_parallel * x.context_parallel) or legal_tensor_parallel(s)
    return f"tensor_parallel={two_closest(fitting, x.tensor_parallel) or 1}"


def _stages(b: LayoutBatch, s: Setting) -> Mask:
    return b.pipeline_parallel > s.model.layers


def _stages_words(x: Layout, s: Setting) -> tuple[str, str]:
    stages = [d for d in divisors(s.gpus) if d <= s.model.layers]
    beside = x.tensor_parallel * x.context_parallel
    stages = [d for d in stages if s.gpus % (d * beside) == 0] or stages
    return (
        f"{s.model.layers} layers cannot fill {x.pipeline_parallel} pipeline stages.",
        f"pipeline_parallel={closest(stages, x.pipeline_parallel)}",
    )


def _sequence(b: LayoutBatch, s: Setting) -> Mask:
    return b.sequence_parallel & ((s.seq_length // b.context_parallel) % b.tensor_parallel != 0)


def _sequence_words(x: Layout, s: Setting) -> tuple[str, str]:
    slice_length = s.seq_length // x.context_parallel
    return (
        f"Sequence parallel splits {slice_length} tokens over tensor parallel {x.tensor_parallel}, "
        "which does not divide them.",
        f"sequence_parallel=false, or a sequence length of "
        f"{_multiples(s.seq_length, x.tensor_parallel * x.context_parallel)}",
    )


def _multiples(number: int, of: int) -> str:
    below = number // of * of
    return " or ".join(str(n) for n in (below, below + of) if n)


def _expert_count(b: LayoutBatch, s: Setting) -> Mask:
    if not s.model.moe:
        return b.expert_parallel > 1
    return np.asarray(s.model.experts % b.expert_parallel != 0)


def _expert_count_words(x: Layout, s: Setting) -> tuple[str, str]:
    if not s.model.moe:
        return (
            f"{s.model.id} has no experts to split over expert parallel {x.expert_parallel}.",
            "expert_parallel=1",
        )
    return (
        f"{s.model.experts} experts are not divisible by expert parallel {x.expert_parallel}.",
        f"expert_parallel={two_closest(divisors(s.model.experts), x.expert_parallel)}",
    )


def _expert_ranks(b: LayoutBatch, s: Setting) -> Mask:
    return (b.data_parallel * b.context_parallel) % b.expert_parallel != 0


def _expert_ranks_words(x: Layout, s: Setting) -> tuple[str, str]:
    ranks = x.data_parallel * x.context_parallel
    fitting = [d for d in divisors(ranks) if s.model.moe and s.model.experts % d == 0] or [1]
    return (
        f"Expert parallel {x.expert_parallel} is taken from {ranks} data-parallel ranks and does not divide them.",
        f"expert_parallel={closest(fitting, x.expert_parallel)}",
    )


RULES: tuple[LegalityRule, ...] = (
    LegalityRule("gpus", _gpus, _gpus_words, _MDS),
    LegalityRule("heads-tp", _heads, _heads_words, _DIVIDE),
    LegalityRule("kv-heads-tp", _kv_heads, _kv_heads_words, _DIVIDE),
    LegalityRule("ffn-tp", _ffn, _ffn_words, _DIVIDE),
    LegalityRule("stages-layers", _stages, _stages_words, "a pipeline stage needs at least one layer"),
    LegalityRule("global-batch", _global_batch, _global_batch_words, f"{_MDS}; DeepSpeed config assertion"),
    LegalityRule("sp-seq", _sequence, _sequence_words, "Megatron scatter_to_sequence_parallel_region"),
    LegalityRule(
        "experts-ep", _expert_count, _expert_count_words, "DeepSpeed moe/layer.py; Megatron-LM arguments"
    ),
    LegalityRule("ranks-ep", _expert_ranks, _expert_ranks_words, "DeepSpeed utils/groups.py"),
)
