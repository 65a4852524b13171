"""Owns step time: how long one training step of a layout takes, part by part, with an interval."""

from gpt_tune.timing.estimate import estimate, estimate_batch, estimate_many
from gpt_tune.timing.types import StepEstimate

__all__ = ["StepEstimate", "estimate", "estimate_batch", "estimate_many"]
