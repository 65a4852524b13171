"""Owns who trains, as the step lines tell: the trainer whose own lines were read, else the engine under it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class _Weight(NamedTuple):
    """How much a format's steps say about who trains: its priority first, then how many there are."""

    priority: int
    steps: int
    name: str


class Trainers:
    """Steps counted by the format that read them."""

    def __init__(self) -> None:
        self._weights: dict[str, _Weight] = {}

    def count(self, kind: str, priority: int, name: str, steps: int = 1) -> None:
        """kind: the format's class. name: its dialect by now, for a reader learns it from the lines."""
        known = self._weights.get(kind)
        self._weights[kind] = _Weight(priority, steps + (known.steps if known else 0), name)

    def name(self, arguments: Mapping[str, str]) -> str | None:
        """The trainer; None before any step line. arguments: those that the log printed."""
        if not self._weights:
            return None
        name = max(self._weights.values()).name
        engine = "Engine" in self._weights or "Pipeline" in self._weights
        if name == "megatron-lm" and (engine or arguments.get("deepspeed") == "True"):
            return "megatron-deepspeed"
        return name
