"""Owns numbers in words for people: counts, durations, shares. Pure; every face uses it."""

from __future__ import annotations


def count_words(value: float) -> str:
    """A count with a decimal suffix: 145.6B, 2.1M, 512."""
    for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(value) >= size / 2:
            return f"{value / size:.3g}{suffix}" if value / size < 100 else f"{value / size:.1f}{suffix}"
    return f"{value:,.0f}"


def seconds_words(seconds: float) -> str:
    """A duration in two units: 3.70 s, 4 min 10 s, 2 h 05 min, 3 d 4 h."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def gpu_hours_words(hours: float | None) -> str:
    """What a job costs: 1,240.5 GPU-hours, 0.017 GPU-hours, no GPU-hours; None when nobody can tell."""
    if hours is None:
        return "an unknown number of GPU-hours"
    if not hours:
        return "no GPU-hours"
    return f"{hours:,.1f} GPU-hours" if hours >= 1 else f"{hours:.2g} GPU-hours"


def percent_words(fraction: float) -> str:
    """A fraction as a percentage: 0.224 -> 22 %, 0.0213 -> 2.1 %."""
    value = 100 * fraction
    return f"{value:.1f} %" if abs(value) < 10 else f"{value:.0f} %"
