"""Owns the benchmark JSON that result collections keep: metadata, summary and steps of one run.

Keys are those of the AWS DeepSpeed test case's result files, so that old and new results can be read together.
What the log or the run does not say is null.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import numpy as np

from gpt_tune.errors import UserError
from gpt_tune.hardware import catalogue
from gpt_tune.ledger import RunRecord
from gpt_tune.logs.parse import ParseResult
from gpt_tune.logs.summary import steady
from gpt_tune.logs.types import Step
from gpt_tune.workflows.records import profile_of


def benchmark_json(result: ParseResult, record: RunRecord | None = None) -> dict[str, Any]:
    """One run as a benchmark object. record: where the log does not say; the log's own words come first."""
    steps = list(result.steps())
    keep = steady(np.asarray([s.segment for s in steps], dtype=float))
    settled = [s for s, kept in zip(steps, keep) if kept]
    return {
        "schema": "gpt-tune/benchmark/1",
        "metadata": _metadata(result, record),
        "summary": _summary(steps, settled),
        "steps": [_step(s) for s in steps],
    }


def _metadata(result: ParseResult, record: RunRecord | None) -> dict[str, Any]:
    facts = result.facts
    layout = (record.plan or {}).get("layout", {}) if record else {}
    gpus = facts.gpus or (record.gpus if record else None) or None
    nodes = (record.nodes if record else None) or facts.nodes
    shape = facts.shape
    return {
        "timestamp": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "job_id": record.job_id if record else None,
        "run_id": record.run_id if record else None,
        "cluster": record.cluster if record else None,
        "instance_type": _instance(record),
        "nodes": nodes,
        "gpus_per_node": gpus // nodes if gpus and nodes else None,
        "total_gpus": gpus,
        "model": shape.id if shape else (record.shape or {}).get("id") if record else None,
        "precision": facts.precision or layout.get("precision"),
        "framework": result.trainer,
        "sweep_config": {
            "config_name": record.name if record else None,
            "tp": facts.tensor_parallel or layout.get("tensor_parallel"),
            "pp": facts.pipeline_parallel or layout.get("pipeline_parallel"),
            "zero_stage": facts.zero_stage if facts.zero_stage is not None else layout.get("zero_stage"),
            "micro_batch_size": facts.micro_batch_size or layout.get("micro_batch_size"),
            "global_batch_size": facts.global_batch_size or layout.get("global_batch_size"),
            "seq_length": facts.seq_length,
        },
    }


def _instance(record: RunRecord | None) -> str | None:
    """The cloud's name of the node type, where the run says which it was."""
    if record is None:
        return None
    try:
        name = profile_of(record).resources.node
        return catalogue.get_node(name).instance or None if name else None
    except UserError:
        return None


def _summary(steps: list[Step], settled: list[Step]) -> dict[str, Any]:
    tflops = [s.model_tflops for s in settled if s.model_tflops is not None]
    seconds = [s.step_time_ms / 1000 for s in settled if s.step_time_ms is not None]
    losses = [s.loss for s in steps if s.loss is not None]

    def of(values: list[float], function: Callable[[list[float]], float]) -> float | None:
        return function(values) if values else None

    return {
        "total_steps": len(steps),
        "warmup_steps": len(steps) - len(settled),
        "steady_state_steps": len(settled),
        "steady_state_avg_tflops_per_gpu": of(tflops, statistics.fmean),
        "steady_state_median_tflops_per_gpu": of(tflops, statistics.median),
        "steady_state_min_tflops_per_gpu": of(tflops, min),
        "steady_state_max_tflops_per_gpu": of(tflops, max),
        "steady_state_stdev_tflops_per_gpu": statistics.stdev(tflops) if len(tflops) > 1 else None,
        "peak_tflops_per_gpu": of([s.model_tflops for s in steps if s.model_tflops is not None], max),
        "tflops_kind": "model",
        "steady_state_avg_step_time_s": of(seconds, statistics.fmean),
        "steady_state_median_step_time_s": of(seconds, statistics.median),
        "steady_state_min_step_time_s": of(seconds, min),
        "steady_state_max_step_time_s": of(seconds, max),
        "initial_loss": losses[0] if losses else None,
        "final_loss": losses[-1] if losses else None,
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "step": step.iteration,
        "total_steps": step.total_iterations,
        "elapsed_ms": step.step_time_ms,
        "step_time_s": None if step.step_time_ms is None else step.step_time_ms / 1000,
        "lm_loss": step.loss,
        "learning_rate": step.learning_rate,
        "global_batch_size": step.global_batch_size,
        "loss_scale": step.loss_scale,
        "grad_norm": step.grad_norm,
        "tflops_per_gpu": step.model_tflops,
        "logged_tflops_per_gpu": step.logged_tflops,
        "logged_tflops_kind": step.logged_tflops_kind,
    }
