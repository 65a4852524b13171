"""Owns a layout's JSON as dotted keys, the form in which a profile fixes parts of a layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_tune.layouts.choices import CHOICES, check_fixed


def flat_layout(layout: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A layout's JSON as fixed keys: dotted, without nulls, without batch and precision (the training step's own)."""
    flat: dict[str, Any] = {}
    for key, value in layout.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat.update(flat_layout(value, f"{dotted}."))
        elif value is not None and dotted in CHOICES and dotted not in ("global_batch_size", "precision"):
            flat[dotted] = value
    return check_fixed(flat) if not prefix else flat
