"""Owns what every kind of image says of itself, and what building or fetching one takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# GiB of local disk: the unpacked image, its layers and the squashed file. A guess: 25 GiB unpacked, four times.
NEED_GIB = 100
# Seconds of warning a build needs to take its scratch folder away.
BUILD_SIGNAL = "B:TERM@60"


@dataclass(frozen=True, slots=True)
class Part:
    """One thing in an image. kind: base, network, python or git."""

    what: str
    version: str
    source: str
    kind: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.what, "version": self.version, "kind": self.kind, "source": self.source}
