"""Owns the records a log is turned into, in the units and names of the JSON contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TflopsKind = Literal["hardware", "model", "gqa_wrong", "unknown"]


@dataclass(slots=True)
class Step:
    """One training step (or log interval). None is "not printed"; nothing is ever guessed.

    Times in ms, rates per second, TFLOPS per GPU. skipped and nan count in the interval. Mutable and
    slotted on purpose: millions are made, and merging duplicates fills missing fields in place.
    """

    iteration: int
    step_time_ms: float | None = None
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    loss_scale: float | None = None
    logged_tflops: float | None = None
    logged_tflops_kind: TflopsKind | None = None
    model_tflops: float | None = None
    tokens_per_second_per_gpu: float | None = None
    samples_per_second: float | None = None
    skipped: int | None = None
    nan: int | None = None
    consumed_samples: int | None = None
    global_batch_size: int | None = None
    total_iterations: int | None = None
    segment: int = 0  # which run of the log (resumes and restarts count up)


@dataclass(frozen=True, slots=True)
class RankMemory:
    """A memory report of one rank, GiB. rank None when the line does not say."""

    rank: int | None
    allocated_gib: float | None
    reserved_gib: float | None
    max_allocated_gib: float | None = None
    max_reserved_gib: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened between steps (see formats.base.Mark), at this line of this file."""

    kind: str
    iteration: int | None
    source: str
