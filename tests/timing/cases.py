"""Owns models, nodes and random layouts for the timing tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from gpt_tune.hardware.catalogue import node_for
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.layout import Layout, Recompute, Trainer
from gpt_tune.models.shape import ModelShape

GPT = ModelShape("gpt", 24, 2048, 16, 16, 8192, 50257, 2048, 128)
WIDE = ModelShape("wide", 80, 12288, 96, 96, 49152, 50257, 2048, 128)
LLAMA = ModelShape(
    "llama",
    32,
    4096,
    32,
    8,
    14336,
    128256,
    8192,
    128,
    gated_mlp=True,
    norm="rmsnorm",
    linear_bias=False,
    qkv_bias=False,
    positions="rotary",
    tied_embeddings=False,
)
MOE = replace(LLAMA, id="moe", experts=8, experts_per_token=2, expert_ffn=14336, dense_layers=1)
MODELS = (GPT, WIDE, LLAMA, MOE)
TRAINERS = (
    Trainer(),
    Trainer(deepspeed="0.6.0", version="bigscience"),
    Trainer(name="megatron-lm", deepspeed=None),
    Trainer(name="megatron-lm", version="nemo", deepspeed=None, gradient_accumulation_dtype="bf16"),
    Trainer(name="fsdp", deepspeed=None),
    Trainer(name="deepspeed"),
)


def node(name: str = "dgx-h100") -> Node:
    return node_for(name)


def layout(**changes: Any) -> Layout:
    """A layout whose global batch follows from the rest."""
    plain = Layout(**changes)
    batch = plain.micro_batch_size * plain.gradient_accumulation_steps * plain.data_parallel
    return replace(plain, global_batch_size=batch)


powers = st.sampled_from([1, 2, 4, 8, 16])
recomputes = st.one_of(
    st.sampled_from([Recompute(), Recompute("selective"), Recompute("full", "uniform", 1)]),
    st.integers(1, 12).map(lambda n: Recompute("full", "block", n)),
)
layouts = st.builds(
    lambda **k: layout(**k),
    tensor_parallel=powers,
    pipeline_parallel=st.integers(1, 16),
    virtual_pipeline=st.integers(1, 4),
    context_parallel=st.sampled_from([1, 2, 4]),
    context_method=st.sampled_from([None, "ring", "ulysses"]),
    expert_parallel=st.sampled_from([1, 2, 8]),
    data_parallel=st.integers(1, 64),
    sequence_parallel=st.booleans(),
    zero_stage=st.integers(0, 3),
    micro_batch_size=st.integers(1, 16),
    gradient_accumulation_steps=st.integers(1, 256),
    recompute=recomputes,
    precision=st.sampled_from(["bf16", "fp16", "fp32", "fp8"]),
    flash_attention=st.booleans(),
)
