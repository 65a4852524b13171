"""Owns the words for two layouts side by side, and their plain form; the screen paints the same words."""

from __future__ import annotations

from typing import Any

from gpt_tune.layouts.choices import ACCUMULATION
from gpt_tune.planner.types import Plan
from gpt_tune.words import percent_words
from gpt_tune.workflows.turnables import AUTOMATIC, NAMES
from gpt_tune.workflows.two_plans import Figure, two_plans
from tui.widgets.words import three

NAME, CELL = 18, 13
LABELS = {
    **{key: label for key, (label, _) in NAMES.items()},
    "data_parallel": "DP", "micro_batch_size": "micro batch", "gradient_accumulation_steps": "accumulation",
    "global_batch_size": "global batch", "gpus": "GPUs",
    "seconds": "step", "model_tflops": "model TFLOPS", "tokens_per_second_per_gpu": "tokens/s per GPU",
    "device_gib": "GPU memory", "oom_probability": "risk of OOM %",
}  # fmt: skip
PARTS = {
    "compute": "compute", "tensor_parallel": "TP", "context_parallel": "CP", "expert_parallel": "EP",
    "pipeline_bubble": "bubble", "pipeline_p2p": "PP", "data_parallel": "DP", "optimizer": "optimizer",
    "other": "other",
}  # fmt: skip


def value_words(key: str, value: Any) -> str:
    if value is None:
        return AUTOMATIC if key == ACCUMULATION else "-"
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def change_words(a: float, b: float, unit: str) -> str:
    """How the second stands beside the first: +0.4 s (+12 %), or about the same."""
    delta = b - a
    if abs(delta) < 0.005 * max(abs(a), abs(b)):
        return "about the same"
    share = f" ({'+' if delta > 0 else '-'}{percent_words(abs(delta / a))})" if a else ""
    return f"{delta:+.3g}{' ' + unit if unit else ''}{share}"


def compared_lines(a: Plan, b: Plan, names: tuple[str, str]) -> list[str]:
    """Keys that differ, the figures of both, then what is the same."""
    both = two_plans(a, b)
    lines = [f"{'':{NAME}}{names[0]:>{CELL}}{names[1]:>{CELL}}   difference"]
    for key, (x, y) in both.differ.items():
        values = f"{value_words(key, x):>{CELL}}{value_words(key, y):>{CELL}}"
        lines.append(f"{'≠ ' + LABELS.get(key, key):<{NAME}}{values}")
    lines += [_figure(figure) for figure in both.figures]
    if both.same:
        said = ", ".join(
            f"{LABELS.get(key, key)} {value_words(key, value)}" for key, value in both.same.items()
        )
        lines.append(f"same: {said}")
    return lines


def _figure(figure: Figure) -> str:
    label = f"    {PARTS[figure.key]}" if figure.part else f"  {LABELS.get(figure.key, figure.key)}"
    scale = 100 if figure.key == "oom_probability" else 1
    a, b = scale * figure.a, scale * figure.b
    return f"{label:<{NAME}}{three(a):>{CELL}}{three(b):>{CELL}}   {change_words(a, b, figure.unit)}"
