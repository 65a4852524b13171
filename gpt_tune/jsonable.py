"""Owns turning records into plain JSON data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_json(value: Any) -> Any:
    """A dataclass (nested) as plain JSON data, every field present."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: as_json(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(v) for v in value]
    return value
