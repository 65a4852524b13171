"""Owns what layout tests share: settings to judge against, and strategies for layouts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gpt_tune.hardware.catalogue import node_for
from gpt_tune.layouts.layout import Layout, Recompute, Trainer
from gpt_tune.layouts.legality import Setting
from gpt_tune.layouts.trainers import parse_trainer
from gpt_tune.models.catalogue import get


def setting(
    model: str = "gpt-145b",
    gpus: int = 64,
    trainer: str | Trainer = "megatron-deepspeed",
    seq_length: int = 2048,
    gpu: str = "p6-b200",
) -> Setting:
    """A setting by names."""
    program = parse_trainer(trainer) if isinstance(trainer, str) else trainer
    return Setting(get(model), node_for(gpu), program, gpus, seq_length)


def layout(gpus: int = 64, batch: int = 64, **keys: Any) -> Layout:
    """A layout whose data parallelism and accumulation follow from the rest unless given."""
    x = Layout(**keys)
    split = x.tensor_parallel * x.pipeline_parallel * x.context_parallel
    data = keys.get("data_parallel", max(1, gpus // split))
    steps = keys.get("gradient_accumulation_steps", max(1, batch // (data * x.micro_batch_size)))
    return Layout(
        **{**keys, "data_parallel": data, "gradient_accumulation_steps": steps, "global_batch_size": batch}
    )


_SIZES = st.sampled_from([1, 2, 3, 4, 7, 8, 16])
recomputes = st.builds(
    Recompute,
    granularity=st.sampled_from(["none", "selective", "full"]),
    method=st.sampled_from([None, "uniform", "block"]),
    layers=st.sampled_from([None, 1, 2, 5, 100]),
)
layouts = st.builds(
    Layout,
    tensor_parallel=_SIZES,
    pipeline_parallel=_SIZES,
    virtual_pipeline=st.sampled_from([1, 2]),
    context_parallel=st.sampled_from([1, 2, 3]),
    context_method=st.sampled_from([None, "ring", "ulysses"]),
    expert_parallel=st.sampled_from([1, 2, 3]),
    data_parallel=_SIZES,
    sequence_parallel=st.booleans(),
    zero_stage=st.integers(0, 3),
    micro_batch_size=_SIZES,
    gradient_accumulation_steps=_SIZES,
    global_batch_size=st.sampled_from([1, 8, 64]),
    recompute=recomputes,
    precision=st.sampled_from(["bf16", "fp16", "fp32", "fp8"]),
    flash_attention=st.booleans(),
)
