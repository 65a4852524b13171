"""Owns what a log says about its run as a whole: the model's shape, the layout, batch and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpt_tune.errors import UserError
from gpt_tune.models.fields import from_fields
from gpt_tune.models.flops import model_flops
from gpt_tune.models.shape import ModelShape

MAX_ARGUMENTS = 4096  # a dump has a few hundred; more is not a dump


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts printed in the log, None where it does not say."""

    shape: ModelShape | None = None
    seq_length: int | None = None
    global_batch_size: int | None = None
    micro_batch_size: int | None = None
    gpus: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    virtual_pipeline: int | None = None
    context_parallel: int | None = None
    expert_parallel: int | None = None
    data_parallel: int | None = None
    sequence_parallel: bool | None = None
    zero_stage: int | None = None
    recompute: str | None = None
    precision: str | None = None
    padded_vocab: int | None = None
    total_iterations: int | None = None
    nodes: int | None = None


def read_facts(arguments: Mapping[str, str]) -> RunFacts:
    """The facts of an argument dump (names as Megatron-type trainers and their launchers print them)."""
    a = _Arguments(arguments)
    return RunFacts(
        shape=_shape(a),
        seq_length=a.integer("seq_length", "sequence_length"),
        global_batch_size=a.integer("global_batch_size", "train_batch_size"),
        micro_batch_size=a.integer("micro_batch_size", "train_micro_batch_size_per_gpu"),
        gpus=a.integer("world_size", "global_num_gpus"),
        tensor_parallel=a.integer("tensor_model_parallel_size", "tensor_parallel", "model_parallel_size"),
        pipeline_parallel=_pipeline(a),
        virtual_pipeline=_virtual(a),
        context_parallel=a.integer("context_parallel_size", "ds_sequence_parallel_size"),
        expert_parallel=a.integer("expert_model_parallel_size", "moe_expert_parallel_size"),
        data_parallel=a.integer("data_parallel_size"),
        sequence_parallel=a.truth("sequence_parallel"),
        zero_stage=_zero(a),
        recompute=_recompute(a),
        precision=_precision(a),
        padded_vocab=a.integer("padded_vocab_size"),
        total_iterations=a.integer("train_iters"),
        nodes=_nodes(a),
    )


def prefer(given: RunFacts, logged: RunFacts) -> RunFacts:
    """What was given beforehand, and where it was not, what the log says."""
    values = {
        name: getattr(given, name) if getattr(given, name) is not None else getattr(logged, name)
        for name in RunFacts.__dataclass_fields__
    }
    return RunFacts(**values)


def flops_per_sample(facts: RunFacts) -> float:
    """Model FLOPs of one sequence, forward and backward; 0.0 when the shape or its length is unknown."""
    if facts.shape is None:
        return 0.0
    length = facts.seq_length or facts.shape.seq_length
    return model_flops(facts.shape, length, length)


class _Arguments:
    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, *names: str) -> str | None:
        for name in names:
            value = self._values.get(name)
            if value is not None and value not in ("", "None"):
                return value
        return None

    def integer(self, *names: str) -> int | None:
        value = self.text(*names)
        if value is None:
            return None
        value = value.strip("[]()").split(",")[0].strip()
        return int(value) if value.isascii() and value.isdigit() and len(value) <= 15 else None

    def truth(self, *names: str) -> bool | None:
        value = self.text(*names)
        return {"true": True, "false": False}.get(value.lower()) if value is not None else None


def _nodes(a: _Arguments) -> int | None:
    """As the launcher says, unless that contradicts the number of ranks."""
    nodes, world, local = (
        a.integer("launcher_nodes"),
        a.integer("world_size"),
        a.integer("launcher_local_ranks"),
    )
    if not nodes or (world and (world % nodes or (local and world != nodes * local))):
        return None
    return nodes


def _shape(a: _Arguments) -> ModelShape | None:
    layers, hidden = a.integer("num_layers"), a.integer("hidden_size")
    heads = a.integer("num_attention_heads")
    if not layers or not hidden or not heads:
        return None
    fields: dict[str, Any] = {"layers": layers, "hidden": hidden, "heads": heads}
    fields["kv_heads"] = _kv_heads(a, heads)
    optional = {
        "ffn": a.integer("ffn_hidden_size"),
        "head_size": a.integer("kv_channels"),
        "vocab": a.integer("unpadded_vocab_size", "padded_vocab_size", "vocab_size"),
        "seq_length": a.integer("seq_length"),
        "gated_mlp": a.truth("swiglu"),
        "linear_bias": a.truth("add_bias_linear"),
    }
    fields.update({k: v for k, v in optional.items() if v is not None})
    untied = a.truth("untie_embeddings_and_output_weights")
    if untied is not None:
        fields["tied_embeddings"] = not untied
    experts = a.integer("num_experts") or 0
    if experts > 1:
        width = a.integer("moe_ffn_hidden_size", "ffn_hidden_size")
        fields.update(experts=experts, experts_per_token=a.integer("moe_router_topk", "topk") or 1)
        fields["expert_ffn"] = width or 4 * hidden
    try:
        return from_fields(fields, "the log's argument dump", f"log-{layers}x{hidden}x{heads}")
    except UserError:
        return None  # a dump whose numbers do not fit together says nothing


def _kv_heads(a: _Arguments, heads: int) -> int:
    if a.truth("group_query_attention"):
        return a.integer("num_query_groups") or heads
    return a.integer("num_key_value_heads") or heads


def _pipeline(a: _Arguments) -> int | None:
    # With --no-pipeline-parallel Megatron-DeepSpeed ignores the size it was given.
    if a.truth("no_pipeline_parallel"):
        return 1
    stages = a.integer(
        "transformer_pipeline_model_parallel_size", "pipeline_model_parallel_size", "pipe_parallel_size"
    )
    return 1 if stages == 0 else stages  # GPT-NeoX calls no pipeline 0


def _virtual(a: _Arguments) -> int | None:
    return a.integer("virtual_pipeline_model_parallel_size") or (1 if _pipeline(a) is not None else None)


def _zero(a: _Arguments) -> int | None:
    if a.truth("deepspeed"):
        return a.integer("zero_stage")
    distributed = a.truth("use_distributed_optimizer")
    return None if distributed is None else int(distributed)


def _recompute(a: _Arguments) -> str | None:
    if a.truth("checkpoint_activations"):
        return "full"
    granularity = a.text("recompute_granularity")
    if granularity is not None:
        return granularity
    return "none" if a.truth("bf16") is not None else None


def _precision(a: _Arguments) -> str | None:
    if a.text("fp8", "fp8_format") not in (None, "False"):
        return "fp8"
    if a.truth("bf16"):
        return "bf16"
    if a.truth("fp16"):
        return "fp16"
    return "fp32" if a.truth("bf16") is not None else None
