"""Owns small models, nodes and layouts that the memory tests share."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gpt_tune.hardware.parts import Gpu, Node
from gpt_tune.layouts.layout import Fusions, Layout, Recompute, Trainer
from gpt_tune.models.shape import ModelShape


def gpu(memory_mib: float | None = 143771.0, capability: tuple[int, int] = (9, 0)) -> Gpu:
    return Gpu(
        id="h200",
        name="H200",
        bf16_tflops=989.0,
        bf16_achievable_tflops=794.0,
        fp8_tflops=1979.0,
        memory_mib_driver=memory_mib,
        memory_gib_torch=139.8,
        memory_bandwidth_gbs=4800.0,
        nvlink_gbs=450.0,
        architecture="hopper",
        compute_capability=capability,
    )


def node(memory_mib: float | None = 143771.0) -> Node:
    return Node(
        id="dgx",
        name="a node",
        gpu=gpu(memory_mib),
        gpus_per_node=8,
        nvlink_domain_gpus=8,
        nics=8,
        network_gbs_per_gpu=50.0,
        network="InfiniBand",
    )


def gpt(layers: int = 24, hidden: int = 2048, heads: int = 16, **changes: Any) -> ModelShape:
    """A GPT of the H200 runs, or one like it."""
    values: dict[str, Any] = {
        "id": "gpt-test",
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads,
        "ffn": 4 * hidden,
        "vocab": 50257,
        "seq_length": 2048,
        "head_size": hidden // heads,
    }
    return ModelShape(**(values | changes))


def llama(
    layers: int = 16, hidden: int = 4096, heads: int = 32, kv_heads: int = 8, **changes: Any
) -> ModelShape:
    values: dict[str, Any] = {
        "kv_heads": kv_heads,
        "ffn": 14336,
        "vocab": 128256,
        "gated_mlp": True,
        "norm": "rmsnorm",
        "linear_bias": False,
        "qkv_bias": False,
        "positions": "rotary",
        "tied_embeddings": False,
    }
    return gpt(layers, hidden, heads, **(values | changes))


def moe(layers: int = 16, dense_layers: int = 3) -> ModelShape:
    return llama(
        layers,
        hidden=2048,
        heads=16,
        kv_heads=16,
        ffn=8192,
        experts=16,
        experts_per_token=2,
        expert_ffn=1408,
        shared_expert_ffn=2816,
        dense_layers=dense_layers,
    )


def layout(**changes: Any) -> Layout:
    """A layout with consistent batch numbers."""
    micro, steps, data = (
        changes.get("micro_batch_size", 1),
        changes.get("gradient_accumulation_steps", 1),
        changes.get("data_parallel", 1),
    )
    return Layout(**({"global_batch_size": micro * steps * data} | changes))


TRAINERS = (
    Trainer("megatron-deepspeed", None, "0.16.4"),
    Trainer("megatron-deepspeed", None, "0.19.8"),
    Trainer("megatron-deepspeed", None, "0.19.8", "fp32"),
    Trainer("megatron-deepspeed", "bigscience", "0.6.0", "fp32"),
    Trainer("megatron-deepspeed", None, "0.19.8", pipeline_engine=False, dropout=0.0),
    Trainer("megatron-deepspeed", None, "0.16.4", expandable_segments=True),
    Trainer("megatron-lm", None, None),
    Trainer("megatron-lm", None, None, "bf16"),
    Trainer("fsdp", None, None),
    Trainer("deepspeed", None, "0.16.4"),
)


@st.composite
def layouts(draw: st.DrawFn, fusions: Fusions | None = None) -> Layout:
    """Layouts over the whole vocabulary, legal or not: memory must not depend on who else checks them."""
    granularity = draw(st.sampled_from(("none", "selective", "full")))
    micro, steps, data = (
        draw(st.sampled_from((1, 2, 4, 8))),
        draw(st.sampled_from((1, 2, 3, 8, 64))),
        draw(st.sampled_from((1, 2, 3, 8, 64))),
    )
    context = draw(st.sampled_from((1, 1, 2, 8)))
    return Layout(
        tensor_parallel=draw(st.sampled_from((1, 2, 4, 8))),
        pipeline_parallel=draw(st.integers(1, 16)),
        virtual_pipeline=draw(st.sampled_from((1, 1, 2, 4))),
        context_parallel=context,
        context_method=draw(st.sampled_from(("ring", "ulysses"))) if context > 1 else None,
        expert_parallel=draw(st.sampled_from((1, 2, 4))),
        data_parallel=data,
        sequence_parallel=draw(st.booleans()),
        zero_stage=draw(st.integers(0, 3)),
        micro_batch_size=micro,
        gradient_accumulation_steps=steps,
        global_batch_size=micro * steps * data,
        recompute=Recompute(
            granularity,  # type: ignore[arg-type]
            draw(st.sampled_from(("uniform", "block"))) if granularity == "full" else None,
            draw(st.sampled_from((1, 2, 3, 5))) if granularity == "full" else None,
        ),
        precision=draw(st.sampled_from(("bf16", "fp16", "fp32", "fp8"))),
        flash_attention=draw(st.booleans()),
        fusions=fusions or Fusions(),
    )
