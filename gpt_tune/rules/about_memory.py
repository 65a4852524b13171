"""Owns best practices and explanations about memory: what binds, what shards, what recompute buys."""

from __future__ import annotations

from gpt_tune.layouts.trainers import accumulation_dtype, pipeline_engine
from gpt_tune.rules.practice import Practice, Situation

# Fujii et al. 2411.06465: in 454 runs nothing below 80 % of the memory ran out of it.
SAFE_SHARE = 0.8
_RISKY = 0.1
_MANY_ACCUMULATIONS = 8
_TERMS = ("parameters", "gradients", "optimizer", "activations", "logits", "buffers", "transient")
_OPTIMIZER = "DeepSpeed runtime/engine.py _do_optimizer_sanity_check and bf16_optimizer.py"


def _ranks(s: Situation) -> int:
    return s.layout.data_parallel * s.layout.context_parallel


def _binding(s: Situation) -> str:
    worst = s.worst
    sizes = sorted(((getattr(worst, t), t) for t in _TERMS), reverse=True)
    first, second = sizes[0], sizes[1]
    stage = f"stage {worst.stage}" if s.layout.pipeline_parallel > 1 else "each GPU"
    phase = s.memory.peak_phase.replace("_", "/")
    return (
        f"Memory binds in {stage} during {phase}: {first[1]} {first[0]:.1f} GiB and {second[1]} "
        f"{second[0]:.1f} GiB of {worst.total:.1f} GiB."
    )


def _headroom(s: Situation) -> str:
    limit = s.memory.limit_gib or 0.0
    share = s.memory.device_gib / limit
    return (
        f"{s.memory.device_gib:.0f} of {limit:.0f} GiB ({share:.0%}) leaves {limit - s.memory.device_gib:.0f} GiB: "
        "runs below 80 % have not run out of memory."
    )


def _safe(s: Situation) -> bool:
    return s.memory.limit_gib is not None and s.memory.device_gib < SAFE_SHARE * s.memory.limit_gib


def _risky(s: Situation) -> bool:
    return s.memory.oom_probability is not None and s.memory.oom_probability > _RISKY


def _risk_words(s: Situation) -> str:
    return (
        f"The chance of running out of memory is {s.memory.oom_probability:.0%}: {s.memory.low_gib:.0f} to "
        f"{s.memory.high_gib:.0f} GiB of {s.memory.limit_gib:.0f}, of which PyTorch can give cached blocks back. "
        "It is ranked as if started again that often."
    )


def _cached(s: Situation) -> bool:
    """Whether the interval reaches beyond the card though the run is expected to fit."""
    m = s.memory
    return m.limit_gib is not None and m.high_gib > m.limit_gib and (m.oom_probability or 0.0) <= _RISKY


def _cached_words(s: Situation) -> str:
    m = s.memory
    return (
        f"The range to {m.high_gib:.0f} GiB passes the card's {m.limit_gib:.0f} because it counts cached blocks, which "
        f"PyTorch gives back before it fails: {m.allocated_gib:.0f} GiB are allocated, and the risk of "
        f"{m.oom_probability or 0.0:.1%} is that of what it cannot give back."
    )


def _full(s: Situation) -> bool:
    return s.layout.recompute.granularity == "full"


def _full_words(s: Situation) -> str:
    recompute = s.layout.recompute
    if recompute.method == "block":
        return (
            f"Recompute of {recompute.layers} layers a stage: the fewest that fit comfortably; "
            "each costs one more forward pass of a layer."
        )
    chunk = "every layer" if recompute.layers == 1 else f"chunks of {recompute.layers} layers"
    return f"Full recompute of {chunk} trades about a third more compute for activations."


def _none_words(s: Situation) -> str:
    return "Activations fit as they are: recompute would only cost time."


def _bf16_zero0(s: Situation) -> bool:
    x = s.layout
    engine = pipeline_engine(x, s.setting.trainer)
    return x.zero_stage == 0 and x.precision == "bf16" and engine and _ranks(s) > 1


def _accumulates_bf16(s: Situation) -> bool:
    x = s.layout
    dtype = accumulation_dtype(x.zero_stage, x.precision, s.setting.trainer)
    many = x.gradient_accumulation_steps >= _MANY_ACCUMULATIONS
    return s.setting.features.deepspeed and x.precision == "bf16" and dtype == "bf16" and many


def _accumulates_fp32(s: Situation) -> bool:
    x = s.layout
    dtype = accumulation_dtype(x.zero_stage, x.precision, s.setting.trainer)
    many = x.gradient_accumulation_steps >= _MANY_ACCUMULATIONS
    return s.setting.features.deepspeed and x.precision == "bf16" and dtype == "fp32" and many


def _accumulates_words(s: Situation) -> str:
    return (
        f"DeepSpeed {s.setting.trainer.deepspeed or ''} adds up {s.layout.gradient_accumulation_steps} micro batches "
        "in bf16 here, which loses precision; data_types.grad_accum_dtype fp32 with ZeRO-1 avoids it."
    ).replace("  ", " ")


def _logits(s: Situation) -> bool:
    return max(m.logits for m in s.memory.stages) > 0.15 * s.memory.device_gib


def _logits_words(s: Situation) -> str:
    last = max(s.memory.stages, key=lambda m: m.logits)
    where = " on the last stage" if s.layout.pipeline_parallel > 1 else ""
    more = " or more tensor parallelism" if s.setting.features.tensor_parallel else ""
    return (
        f"Logits of {s.setting.model.vocab} words take {last.logits:.1f} GiB{where}; "
        f"a smaller micro batch{more} shrinks them."
    )


PRACTICES: tuple[Practice, ...] = (
    Practice("memory-binding", "explain", lambda s: True, _binding, "gpt-tune's own estimate"),
    Practice(
        "oom-risk",
        "warn",
        _risky,
        _risk_words,
        "gpt-tune's own estimate",
        fix="more GPUs, recompute, smaller batch",
    ),
    Practice(
        "cached-memory", "note", _cached, _cached_words, "PyTorch CUDA caching allocator; gpt-tune's estimate"
    ),
    Practice("headroom", "note", _safe, _headroom, "Fujii et al., arXiv 2411.06465: 454 runs"),
    Practice(
        "recompute-none",
        "explain",
        lambda s: s.layout.recompute.granularity == "none",
        _none_words,
        "Korthikanti et al., arXiv 2205.05198",
    ),
    Practice("recompute-full", "explain", _full, _full_words, "Korthikanti et al., arXiv 2205.05198"),
    Practice(
        "recompute-selective",
        "explain",
        lambda s: s.layout.recompute.granularity == "selective",
        lambda s: "Selective recompute drops the attention scores, the cheapest to compute again.",
        "Korthikanti et al., arXiv 2205.05198",
    ),
    Practice(
        "zero-dp1",
        "explain",
        lambda s: _ranks(s) == 1 and s.layout.zero_stage == 0 and s.setting.features.finetune is None,
        lambda s: "ZeRO-0: one data-parallel rank, nothing to shard.",
        "awsome-distributed-training PR 1009: ZeRO-0 beats ZeRO-1 at one data-parallel rank",
    ),
    Practice(
        "zero0-shards",
        "note",
        _bf16_zero0,
        lambda s: (
            f"ZeRO-0 with bf16 in the pipeline engine still shards the optimizer over {_ranks(s)} data-parallel "
            "ranks (BF16_Optimizer)."
        ),
        _OPTIMIZER + "; measured: 16 bytes a parameter on one rank, 10 on two",
    ),
    Practice(
        "zero-shards",
        "explain",
        lambda s: s.layout.zero_stage > 0 and _ranks(s) > 1 and s.setting.features.finetune is None,
        lambda s: f"ZeRO-{s.layout.zero_stage} shards over {_ranks(s)} data-parallel ranks.",
        "Rajbhandari et al., arXiv 1910.02054",
    ),
    Practice(
        "bf16-accumulation",
        "warn",
        _accumulates_bf16,
        _accumulates_words,
        _OPTIMIZER + ", and its warning about bf16 accumulation",
        fix="data_types.grad_accum_dtype=fp32",
    ),
    Practice(
        "fp32-accumulation",
        "explain",
        _accumulates_fp32,
        lambda s: (
            f"Gradients of {s.layout.gradient_accumulation_steps} micro batches are added up in fp32, which is worth "
            "up to 3 % of time: in bf16 small ones are lost."
        ),
        _OPTIMIZER + ", and its warning about bf16 accumulation",
    ),
    Practice("logits-large", "note", _logits, _logits_words, "Korthikanti et al., arXiv 2205.05198, eq. 5"),
)
