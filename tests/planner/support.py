"""Owns what planner tests share: requests by names."""

from __future__ import annotations

from typing import Any

from gpt_tune.models.shape import ModelShape
from gpt_tune.planner import build_request
from gpt_tune.planner.types import PlanRequest


def request(
    model: str | ModelShape = "gpt-145b", gpus: int = 64, gpu: str = "p6-b200", **keys: Any
) -> PlanRequest:
    """A request; keys are those of build_request."""
    return build_request(model, gpus, gpu=gpu, **keys)


REQUESTS: dict[str, dict[str, Any]] = {
    "145b": {},
    "145b-seed": {"global_batch_size": 64},
    "103b-h100": {"model": "gpt-103b", "gpu": "h100", "gpus": 128},
    "1.3b-node": {"model": "gpt-1.3b", "gpus": 8, "gpu": "h200"},
    "1.3b-one": {"model": "gpt-1.3b", "gpus": 1, "gpu": "h200"},
    "1.3b-three": {"model": "gpt-1.3b", "gpus": 3, "gpu": "h100"},
    "llama-mds": {"model": "llama-3-8b", "gpus": 32, "gpu": "a100", "seq_length": 4096},
    "llama-mlm": {"model": "llama-3-70b", "gpu": "h100", "trainer": "megatron-lm"},
    "llama-fsdp": {"model": "llama-3-70b", "gpu": "h100", "trainer": "fsdp"},
    "mixtral": {"model": "mixtral-8x7b", "gpu": "h100", "trainer": "megatron-lm", "gpus": 16},
    "bloom": {"model": "bloom-7b1", "gpus": 16, "gpu": "a100", "precision": "fp16"},
    "falcon": {"model": "falcon-7b", "gpus": 8, "gpu": "h100", "global_batch_size": 24},
    "fp32": {"model": "gpt-350m", "gpus": 8, "gpu": "h100", "precision": "fp32"},
    "qlora": {
        "model": "qwen3-8b",
        "gpus": 4,
        "gpu": "a10g",
        "trainer": "qlora",
        "seq_length": 1536,
        "global_batch_size": 32,
    },
    "full-finetune": {
        "model": "llama-3.1-8b",
        "gpus": 16,
        "gpu": "h100",
        "trainer": "full-finetune",
        "seq_length": 2048,
        "global_batch_size": 128,
    },
    "old-deepspeed": {
        "model": "gpt-6.7b",
        "gpus": 16,
        "gpu": "a100",
        "trainer": "megatron-deepspeed@deepspeed-0.10.0",
    },
    "new-deepspeed": {
        "model": "gpt-6.7b",
        "gpus": 16,
        "gpu": "h100",
        "trainer": "megatron-deepspeed@deepspeed-0.19.5",
    },
}
