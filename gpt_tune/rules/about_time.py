"""Owns best practices and explanations about step time: what binds, bubble, links, shapes that run badly."""

from __future__ import annotations

from gpt_tune.layouts.stages import sizes, split_of
from gpt_tune.models.parameters import padded_vocab
from gpt_tune.rules.practice import Practice, Situation
from gpt_tune.words import seconds_words

_PARTS = {
    "tensor_parallel": "tensor-parallel communication",
    "context_parallel": "context-parallel communication",
    "expert_parallel": "expert-parallel communication",
    "pipeline_bubble": "the pipeline bubble",
    "pipeline_p2p": "sending between stages",
    "data_parallel": "data-parallel communication",
    "optimizer": "the optimizer",
    "other": "waiting for the host",
}
_LARGE_BUBBLE = 0.1
_WORTH_A_WORD = 0.005  # of the step
_TILE = 64
_NARAYANAN = "Narayanan et al., arXiv 2104.04473, sections 2 and 3"
_TR11 = "BigScience tr11 tables: the bubble, memory and data-parallel volume decide, not a rule"


def _binding(s: Situation) -> str:
    parts = sorted(((getattr(s.step, name), words) for name, words in _PARTS.items()), reverse=True)
    seconds, words = parts[0]
    share = s.step.compute / s.step.seconds
    text = f"Compute is {share:.0%} of the {s.step.seconds:.3g} s step"
    if seconds < _WORTH_A_WORD * s.step.seconds:
        return text + "; nothing else takes half a percent."
    return f"{text}; the largest of the rest is {words}, {seconds_words(seconds)} ({seconds / s.step.seconds:.0%})."


def _bubble_words(s: Situation) -> str:
    x = s.layout
    interleaved = f" in {x.virtual_pipeline} chunks" if x.virtual_pipeline > 1 else ""
    micro = (
        "1 micro batch"
        if x.gradient_accumulation_steps == 1
        else f"{x.gradient_accumulation_steps} micro batches"
    )
    return (
        f"{x.pipeline_parallel} stages{interleaved} with {micro} idle {s.bubble:.1%} of their time: "
        f"{seconds_words(s.step.pipeline_bubble)} a step."
    )


def _uneven(s: Situation) -> bool:
    chunks = s.layout.pipeline_parallel * s.layout.virtual_pipeline
    return s.setting.model.layers % chunks != 0 and not s.setting.features.even_stages


def _ends_counted(s: Situation) -> bool:
    return s.setting.features.even_stages and s.setting.model.layers % s.layout.pipeline_parallel != 0


def _uneven_words(s: Situation) -> str:
    split = sizes(s.setting.model.layers, s.layout.pipeline_parallel, split_of(s.setting.trainer))
    lost = max(split) * s.layout.pipeline_parallel / s.setting.model.layers - 1
    return (
        f"{s.setting.model.layers} layers do not divide by {s.layout.pipeline_parallel} stages: the fullest has "
        f"{max(split)}, the emptiest {min(split)}, and every stage waits for the fullest ({lost:.0%} lost)."
    )


def _inside(s: Situation) -> bool:
    return 1 < s.layout.tensor_parallel <= _domain(s)


def _domain(s: Situation) -> int:
    return s.setting.node.nvlink_domain_gpus


def _head_words(s: Situation) -> str:
    m = s.setting.model
    return f"Head size {m.head_size} is not a multiple of 8, so attention cannot use the fast matrix units fully."


def _head_64_words(s: Situation) -> str:
    m = s.setting.model
    return f"Head size {m.head_size} is not a multiple of 64; 64 and 128 run best."


def _slice_widths(s: Situation) -> list[int]:
    m, t = s.setting.model, s.layout.tensor_parallel
    return [m.heads * m.head_size // t, (m.expert_ffn or m.ffn) // t]


def _bad_slices(s: Situation) -> bool:
    return any(w % _TILE for w in _slice_widths(s))


def _slices_words(s: Situation) -> str:
    bad = next(w for w in _slice_widths(s) if w % _TILE)
    return (
        f"Tensor parallel {s.layout.tensor_parallel} leaves matrices {bad} wide, not a multiple of {_TILE}: "
        "their products run below full rate."
    )


def _padding(s: Situation) -> int:
    return padded_vocab(s.setting.model, s.layout.tensor_parallel) - s.setting.model.vocab


def _padding_words(s: Situation) -> str:
    padded = padded_vocab(s.setting.model, s.layout.tensor_parallel)
    return (
        f"The vocabulary of {s.setting.model.vocab} is padded to {padded}, a multiple of "
        f"128 x {s.layout.tensor_parallel}: {_padding(s)} unused rows."
    )


def _data_words(s: Situation) -> str:
    ranks = s.layout.data_parallel * s.layout.context_parallel
    if s.layout.zero_stage == 3:
        return (
            f"ZeRO-3 gathers all weights over {ranks} ranks in every pass and reduces gradients with every micro "
            f"batch: {s.step.data_parallel:.3g} s a step."
        )
    return (
        f"Gradients are reduced over {ranks} ranks after the last micro batch and hide nothing: "
        f"{s.step.data_parallel:.3g} s a step."
    )


def _spans_nodes(s: Situation) -> bool:
    group = s.layout.tensor_parallel * s.layout.pipeline_parallel
    return s.layout.pipeline_parallel > 1 and group > s.setting.node.gpus_per_node


PRACTICES: tuple[Practice, ...] = (
    Practice("time-binding", "explain", lambda s: True, _binding, "gpt-tune's own estimate"),
    Practice(
        "bubble-share",
        "explain",
        lambda s: s.layout.pipeline_parallel > 1 and s.bubble <= _LARGE_BUBBLE,
        _bubble_words,
        _NARAYANAN + ": (p-1)/(m+p-1)",
    ),
    Practice(
        "bubble-large",
        "warn",
        lambda s: s.bubble > _LARGE_BUBBLE,
        _bubble_words,
        _NARAYANAN + ": (p-1)/(m+p-1)",
        fix="a larger global batch, a smaller micro batch or fewer stages",
    ),
    Practice(
        "pipeline-not-a-law",
        "note",
        lambda s: (
            s.layout.pipeline_parallel == 1
            and s.setting.gpus > s.setting.node.gpus_per_node
            and s.setting.features.pipeline_parallel
        ),
        lambda s: "No pipeline: more stages are no gain in themselves, they trade memory for bubble.",
        _TR11,
    ),
    Practice(
        "stages-uneven", "warn", _uneven, _uneven_words, "DeepSpeed pipe/module.py type:transformer partition"
    ),
    Practice(
        "stages-ends-counted",
        "note",
        _ends_counted,
        lambda s: (
            f"{s.setting.model.layers} layers come out even over {s.layout.pipeline_parallel} stages only when the "
            "embedding and the output count as a layer each."
        ),
        "Megatron-LM --account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split",
    ),
    Practice(
        "tp-within-node",
        "explain",
        _inside,
        lambda s: (
            f"Tensor parallel {s.layout.tensor_parallel} stays inside the {_domain(s)} GPUs that share the fast link."
        ),
        _NARAYANAN,
    ),
    Practice(
        "tp-across-nodes",
        "warn",
        lambda s: s.layout.tensor_parallel > _domain(s),
        lambda s: (
            f"Tensor parallel {s.layout.tensor_parallel} leaves the {_domain(s)} GPUs that share the fast link and "
            "waits for the network in every layer."
        ),
        _NARAYANAN,
        fix="tensor parallel within a node",
    ),
    Practice(
        "pp-across-nodes",
        "note",
        _spans_nodes,
        lambda s: "Pipeline stages go across nodes: they send least of all kinds of parallelism.",
        _NARAYANAN,
    ),
    Practice(
        "dp-exposed",
        "note",
        lambda s: s.setting.is_megatron_deepspeed and s.step.data_parallel > 0.05 * s.step.seconds,
        _data_words,
        "DeepSpeed pipe/engine.py _exec_reduce_grads runs after the pipeline is empty; ZeRO: arXiv 1910.02054",
        fix="a larger global batch, or more model parallelism",
    ),
    Practice(
        "head-size-8",
        "warn",
        lambda s: s.setting.model.head_size % 8 != 0,
        _head_words,
        "NVIDIA matrix multiplication guide",
        fix="another number of heads",
    ),
    Practice(
        "head-size-64",
        "note",
        lambda s: s.setting.model.head_size % 8 == 0 and s.setting.model.head_size % 64 != 0,
        _head_64_words,
        "BigScience tr11: head size moved step time by up to a third",
    ),
    Practice("gemm-slices", "warn", _bad_slices, _slices_words, "NVIDIA matrix multiplication guide"),
    Practice(
        "vocab-padding",
        "note",
        lambda s: s.setting.is_megatron_deepspeed and _padding(s) > 0.01 * s.setting.model.vocab,
        _padding_words,
        "Megatron --make-vocab-size-divisible-by 128",
    ),
)
