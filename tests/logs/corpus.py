"""The corpus of logs with expected answers, and how an answer is compared."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "data" / "logs" / "corpus"


@cache
def expected() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
    return data


def numbers() -> list[str]:
    return sorted(expected())


def log(number: str) -> Path:
    return next(FOLDER.glob(f"{number}-*.log"))


def same(want: Any, got: Any) -> bool:
    """Equal figures; null also stands for a printed nan or inf."""
    if want is None or got is None:
        return want is None and (got is None or not math.isfinite(got))
    if isinstance(want, str):
        return bool(want == got)
    return math.isclose(float(want), float(got), rel_tol=1e-9, abs_tol=1e-15)
