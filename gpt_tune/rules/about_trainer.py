"""Owns best practices about the trainer: variables and switches a layout needs, kernels that fall back."""

from __future__ import annotations

from gpt_tune.layouts.trainers import pipeline_engine
from gpt_tune.rules.practice import Practice, Situation

_MDS = "Megatron-DeepSpeed megatron/arguments.py (4efb479)"


def _sequence(s: Situation) -> bool:
    return s.layout.sequence_parallel and s.layout.tensor_parallel > 1


def _mds(s: Situation) -> bool:
    return s.setting.is_megatron_deepspeed


def _fused_softmax_possible(s: Situation) -> bool:
    x, m, seq = s.layout, s.setting.model, s.setting.seq_length
    batches = m.heads // x.tensor_parallel * x.micro_batch_size
    return 16 < seq <= 4096 and seq % 4 == 0 and batches % 4 == 0 and x.precision in ("bf16", "fp16")


def _unfused_words(s: Situation) -> str:
    x, m = s.layout, s.setting.model
    return (
        f"The fused softmax needs 16 < sequence <= 4096, and heads x micro batch a multiple of 4; here the sequence "
        f"is {s.setting.seq_length} and heads x micro batch {m.heads // x.tensor_parallel * x.micro_batch_size}: "
        "the slow path runs."
    )


def _engine_off(s: Situation) -> bool:
    return _mds(s) and not pipeline_engine(s.layout, s.setting.trainer)


def _engine_on(s: Situation) -> bool:
    return _mds(s) and pipeline_engine(s.layout, s.setting.trainer)


def _engine_off_words(s: Situation) -> str:
    x = s.layout
    why = f"ZeRO-{x.zero_stage}" if x.zero_stage >= 2 else f"Ulysses {x.context_parallel}"
    if x.zero_stage < 2 and x.context_parallel == 1:
        why = "The trainer setting"
    return f"{why} runs without the pipeline engine: --no-pipeline-parallel."


def _new_architecture(s: Situation) -> bool:
    capability = s.setting.node.gpu.compute_capability
    return capability is not None and capability >= (10, 0)


def _lacking(s: Situation) -> list[str]:
    """Parts of the model that Megatron-DeepSpeed's GPT has no argument for."""
    m = s.setting.model
    if not _mds(s):
        return []
    parts = (
        ("ALiBi positions", m.positions == "alibi"),
        ("a norm behind the embedding", m.embedding_norm),
        ("norms on query and key", m.qk_norm),
        ("biases on query, key and value alone", m.qkv_bias != m.linear_bias),
        ("a shared norm", m.norms_per_layer == 1),
        ("four norms a layer", m.norms_per_layer == 4),
        ("shared experts", m.shared_expert_ffn > 0),
    )
    return [words for words, there in parts if there]


PRACTICES: tuple[Practice, ...] = (
    Practice(
        "sp-needs-cdmc",
        "note",
        lambda s: _sequence(s) and s.setting.trainer.name in ("megatron-deepspeed", "megatron-lm"),
        lambda s: "Sequence parallel raises an error unless CUDA_DEVICE_MAX_CONNECTIONS=1 is set.",
        _MDS,
        fix="export CUDA_DEVICE_MAX_CONNECTIONS=1",
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    ),
    Practice(
        "tp-needs-cdmc",
        "note",
        lambda s: (
            s.setting.trainer.name == "megatron-lm" and s.layout.tensor_parallel > 1 and not _sequence(s)
        ),
        lambda s: (
            "Megatron-LM overlaps tensor-parallel communication only with CUDA_DEVICE_MAX_CONNECTIONS=1."
        ),
        "Megatron-LM megatron/training/arguments.py",
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    ),
    Practice(
        "sp-saves",
        "explain",
        _sequence,
        lambda s: (
            f"Sequence parallel divides norm and dropout activations by {s.layout.tensor_parallel} "
            "for the same communication."
        ),
        "Korthikanti et al., arXiv 2205.05198",
    ),
    Practice(
        "sp-learned-positions",
        "note",
        lambda s: _sequence(s) and s.setting.model.positions == "learned" and _engine_on(s),
        lambda s: (
            "Sequence parallel with learned positions stops stock Megatron-DeepSpeed in its pipeline engine (index out "
            "of range); jobs of gpt-tune start it through repaired.py, which mends that."
        ),
        "measured on two H200 with Megatron-DeepSpeed of July 2025: stock stops, mended trains as without",
        fix="sequence_parallel=false where Megatron-DeepSpeed is started by hand",
    ),
    Practice(
        "sp-pipe-partitioned",
        "warn",
        lambda s: _mds(s) and _sequence(s) and s.layout.pipeline_parallel > 1,
        lambda s: (
            "Sequence parallel with pipeline stages needs pipe_partitioned and grad_partitioned false in the "
            "DeepSpeed configuration, which split what is already split."
        ),
        "deepspeedai/Megatron-DeepSpeed issue 170, PRs 429 and 468",
        fix='"pipeline": {"pipe_partitioned": false, "grad_partitioned": false}',
    ),
    Practice(
        "moe-pipe-partitioned",
        "warn",
        lambda s: (
            _mds(s)
            and s.setting.model.moe
            and s.layout.pipeline_parallel > 1
            and s.layout.tensor_parallel > 1
        ),
        lambda s: (
            "Experts with stages and tensor parallelism need pipe_partitioned and grad_partitioned false."
        ),
        "Megatron-DeepSpeed model/gpt_model.py",
        fix='"pipeline": {"pipe_partitioned": false, "grad_partitioned": false}',
    ),
    Practice(
        "no-pipeline-engine", "note", _engine_off, _engine_off_words, "DeepSpeed runtime/pipe/engine.py"
    ),
    Practice(
        "fused-softmax",
        "warn",
        lambda s: not s.layout.flash_attention and _mds(s) and not _fused_softmax_possible(s),
        _unfused_words,
        "Megatron-DeepSpeed model/fused_softmax.py",
        fix="flash_attention=true",
    ),
    Practice(
        "fused-softmax-new-gpu",
        "warn",
        lambda s: not s.layout.flash_attention and _mds(s) and _new_architecture(s),
        lambda s: (
            f"The fused softmax is compiled for sm_70 to sm_90 only; {s.setting.node.gpu.name} needs its own "
            "architecture added, or flash attention."
        ),
        "Megatron-DeepSpeed megatron/fused_kernels (not run here)",
        fix="flash_attention=true",
    ),
    Practice(
        "trainer-lacks",
        "warn",
        lambda s: bool(_lacking(s)),
        lambda s: (
            f"Megatron-DeepSpeed has no argument for {', '.join(_lacking(s))}: it trains {s.setting.model.id} without."
        ),
        _MDS,
        fix="another trainer",
    ),
    Practice(
        "fusion-needs-apex",
        "warn",
        lambda s: _mds(s) and s.layout.fusions.gradient_accumulation,
        lambda s: (
            "Gradient accumulation fusion needs APEX's fused_weight_gradient_mlp_cuda and stops without it."
        ),
        "Megatron-DeepSpeed core/tensor_parallel/layers.py",
        fix="fusions.gradient_accumulation=false",
    ),
    Practice(
        "expandable-segments",
        "note",
        lambda s: s.setting.trainer.expandable_segments,
        lambda s: "The allocator grows its segments, which keeps reserved memory near allocated.",
        "PyTorch CUDA memory notes (the value is True with a capital T)",
        environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    ),
    Practice(
        "gqa-printed-tflops",
        "note",
        lambda s: _mds(s) and s.setting.model.heads // s.setting.model.kv_heads > 2,
        lambda s: (
            "Megatron-DeepSpeed's printed TFLOPs leave out key and value products here (2 // "
            f"{s.setting.model.heads // s.setting.model.kv_heads} = 0); model TFLOPS are converted."
        ),
        "Megatron-DeepSpeed megatron/utils.py throughput_calculator",
    ),
)
