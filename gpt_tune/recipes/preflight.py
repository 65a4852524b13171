"""Owns whether a job looks at its nodes before it starts, and what it looks for there."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpt_tune import rendering
from gpt_tune.models.parameters import total
from gpt_tune.models.shape import ModelShape
from gpt_tune.recipes import network
from gpt_tune.recipes.base import JobSpec, RenderedFile
from gpt_tune.units import MIB

# Weights in 2 bytes; master weights and Adam's two moments in 4 each: what Megatron and DeepSpeed save.
_CHECKPOINT_BYTES_PER_PARAMETER = 14


@dataclass(frozen=True, slots=True)
class Look:
    """What `common/preflight.j2` asks for. gpus: of one node. image: a file that every node must read, or ""."""

    seconds: int
    gpus: int
    nodes: int
    network: str
    image: str
    save_mib: int


def look(spec: JobSpec, *, automatic: bool = True, save_mib: int = 0) -> Look | None:
    """The look that a job takes, None for none. automatic: what the recipe does on several nodes when nobody says.

    save_mib: room that one checkpoint takes.
    """
    chosen = spec.profile.preflight
    if chosen.run == "off" or (chosen.run == "auto" and not (automatic and spec.nodes > 1)):
        return None
    environment = spec.site.environment
    contained = environment.kind in ("pyxis", "apptainer")
    return Look(
        seconds=chosen.seconds,
        gpus=spec.gpus_per_node if spec.gpus else 0,
        nodes=spec.nodes,
        network=network.profile_of(spec.site) if spec.nodes > 1 and spec.gpus > 1 else "none",
        image=environment.image if contained else "",
        save_mib=save_mib,
    )


def checkpoint_mib(model: ModelShape) -> int:
    """Room for one whole checkpoint of a pretraining run."""
    return math.ceil(total(model) * _CHECKPOINT_BYTES_PER_PARAMETER / MIB)


def files(found: Look | None) -> tuple[RenderedFile, ...]:
    """The program that looks, where a job does."""
    if found is None:
        return ()
    return (RenderedFile("preflight.sh", rendering.shipped("common/preflight.sh"), executable=True),)
