"""Owns what a calibration is: a few named constants of one cluster, where they come from and how far off they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Calibration:
    """Constants of one cluster. A missing name means the default of the room that uses it.

    memory and timing: constant name -> value (names and units are documented by those rooms).
    *_error: typical relative error (a fraction) of predictions made with it; *_rows: on how many runs.
    here: made from the user's own runs on this cluster.
    """

    name: str = "default"
    source: str = ""
    fitted_at: str | None = None
    memory: Mapping[str, float] = field(default_factory=dict)
    timing: Mapping[str, float] = field(default_factory=dict)
    memory_error: float | None = None
    memory_rows: int = 0
    time_error: float | None = None
    time_rows: int = 0
    here: bool = False
