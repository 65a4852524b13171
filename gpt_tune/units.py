"""Owns unit constants and the small conversions between them."""

from __future__ import annotations

KIB = 1024
MIB = 1024**2
GIB = 1024**3
TERA = 1e12


def gib(n_bytes: float) -> float:
    """Bytes to GiB (2^30)."""
    return n_bytes / GIB
