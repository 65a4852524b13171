"""Owns the few number words only screens need; the rest are in gpt_tune.words."""

from __future__ import annotations

import math


def clock(seconds: float | None) -> str:
    """Elapsed time as `00:42` or `4:50:10`."""
    if seconds is None or seconds < 0:
        return "--:--"
    hours, rest = divmod(int(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes:02}:{left:02}"


def three(value: float) -> str:
    """Three significant figures, never in exponent form for everyday sizes."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    size = math.floor(math.log10(abs(value)))
    if size >= 6 or size < -4:
        return f"{value:.3g}"
    return f"{value:.{max(0, 2 - size)}f}"


def plural(number: int, word: str, many: str = "") -> str:
    """`1 node`, `8 nodes`."""
    return f"{number:,} {word if number == 1 else many or word + 's'}"
