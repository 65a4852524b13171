"""Owns rotary positions: how their scaling is written down, and the angles that follow from a shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpt_tune.errors import UserError
from gpt_tune.models.shape import ModelShape

# Hugging Face's names and ours.
_PARTS = {
    "factor": "factor",
    "low_freq_factor": "low",
    "high_freq_factor": "high",
    "original_max_position_embeddings": "original",
}
_NAMES = tuple(_PARTS.values())
# Scalings whose angles depend on nothing but the shape.
FIXED = ("linear", "llama3")


@dataclass(frozen=True, slots=True)
class Scaling:
    """kind: Hugging Face's word. original: positions that the unscaled model was trained with.

    llama3 leaves waves shorter than original/high alone and divides the frequency of those longer than original/low
    by factor, with a slope between them (Llama 4 has none: high equals low). linear divides all of them.
    """

    kind: str
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: float = 8192.0


def written(config: Mapping[str, Any]) -> str:
    """A config.json's rope_scaling as one line ("llama3 factor=8 low=1 high=4 original=8192"), "" for none."""
    kind = str(config.get("rope_type") or config.get("type") or "default")
    if kind == "default":
        return ""
    numbers = ((ours, config.get(theirs)) for theirs, ours in _PARTS.items())
    return " ".join(
        [kind, *(f"{n}={v:g}" for n, v in numbers if isinstance(v, (int, float)) and not isinstance(v, bool))]
    )


def parse(text: str, where: str = "the model") -> Scaling | None:
    """The scaling that such a line says, None for none. UserError when it says none that can be."""
    if not text.strip():
        return None
    kind, *parts = text.split()
    values: dict[str, float] = {}
    for part in parts:
        name, equals, number = part.partition("=")
        try:
            values[name] = float(number)
        except ValueError:
            equals = ""
        if not equals or name not in _NAMES or not (math.isfinite(values[name]) and values[name] > 0):
            raise UserError(
                f"rope_scaling of {where} holds {part!r}.",
                f"Write KIND and NAME=NUMBER of {', '.join(_NAMES)}.",
            )
    scaling = Scaling(kind, **values)
    if scaling.high < scaling.low:
        raise UserError(
            f"rope_scaling of {where} has high {scaling.high:g}, below low {scaling.low:g}.", "Swap them."
        )
    return scaling


def canonical(text: str, where: str) -> str:
    """The line with its parts in our order, so that two that say the same are equal."""
    parse(text, where)
    kind, *parts = text.split() or [""]
    return " ".join([kind, *sorted(parts, key=lambda p: _NAMES.index(p.partition("=")[0]))])


def frequencies(shape: ModelShape) -> list[float]:
    """Radians a position turns each pair of a head by. UserError for a scaling that changes while it runs."""
    width = int(shape.head_size * shape.rotary_share) // 2 * 2
    plain = [shape.rope_theta ** (-i / width) for i in range(0, width, 2)]
    scaling = parse(shape.rope_scaling, shape.id)
    if scaling is None:
        return plain
    if scaling.kind not in FIXED:
        raise UserError(
            f"{shape.id} scales its rotary angles by {scaling.kind!r}.", f"Known here: {', '.join(FIXED)}."
        )
    return [_scaled(f, scaling) for f in plain]


def _scaled(frequency: float, scaling: Scaling) -> float:
    if scaling.kind == "linear":
        return frequency / scaling.factor
    waves = scaling.original * frequency / (2 * math.pi)  # in the original length
    slope = scaling.high - scaling.low
    kept = min(1.0, max(0.0, (waves - scaling.low) / slope)) if slope else float(waves > scaling.high)
    return (1 - kept) * frequency / scaling.factor + kept * frequency
