"""Owns two layouts side by side: what differs is marked and comes first, what is the same is one line. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_tune.layouts.layout import Layout
from gpt_tune.planner.types import Plan, PlanRequest
from gpt_tune.words import percent_words
from tui.widgets.paint import Line, Span
from tui.widgets.plan_lines import step_parts
from tui.widgets.words import three

DIFFERS = "≠ "  # a sign as well as a colour
NAME, CELL = 16, 13

LABELS = {
    "tensor_parallel": "TP", "pipeline_parallel": "PP", "virtual_pipeline": "VP", "context_parallel": "CP",
    "context_method": "CP method", "expert_parallel": "EP", "data_parallel": "DP", "sequence_parallel": "SP",
    "zero_stage": "ZeRO", "micro_batch_size": "micro batch", "gradient_accumulation_steps": "accumulation",
    "global_batch_size": "global batch", "recompute.granularity": "recompute", "recompute.method": "method",
    "recompute.layers": "layers", "flash_attention": "flash", "fusions.masked_softmax": "fused softmax",
    "fusions.bias_gelu": "fused gelu", "fusions.bias_dropout": "fused dropout",
    "fusions.gradient_accumulation": "fused grads",
}  # fmt: skip


def compared(a: Plan, b: Plan, names: tuple[str, str]) -> list[Line]:
    """Every field of two layouts, then what they are predicted to come to."""
    lines: list[Line] = [
        [(f"{'':{NAME + 2}}{names[0]:>{CELL}}{names[1]:>{CELL}}", "head"), ("   difference", "head")]
    ]
    differ, same = _fields(a.layout, b.layout)
    for label, x, y in differ:
        lines.append([(DIFFERS, "warn"), (f"{label:<{NAME}}", ""), (f"{x:>{CELL}}{y:>{CELL}}", "strong")])
    for label, v, w, unit in _numbers(a, b):
        lines.append(_number_line(label, v, w, unit))
    if same:
        lines.append([("same    ", "muted"), (", ".join(f"{label} {x}" for label, x in same), "muted")])
    return lines


def _fields(a: Layout, b: Layout) -> tuple[list[tuple[str, str, str]], list[tuple[str, str]]]:
    """Fields that differ as (label, a, b), and those that do not as (label, value)."""
    first, second = flat(a.to_json()), flat(b.to_json())
    differ: list[tuple[str, str, str]] = []
    same: list[tuple[str, str]] = []
    for key, value in first.items():
        label, other = LABELS.get(key, key), second[key]
        if value != other:
            differ.append((label, _words(value), _words(other)))
        elif value is not None:
            same.append((label, _words(value)))
    return differ, same


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A layout's JSON by dotted key."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


def _words(value: Any) -> str:
    if value is None:
        return "-"
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _numbers(a: Plan, b: Plan) -> list[tuple[str, float, float, str]]:
    """What is predicted; parts of the step only where they differ by more than 1 % of it."""
    out = [("step", a.step.seconds, b.step.seconds, "s")]
    for p, q in zip(step_parts(a.step), step_parts(b.step), strict=True):
        if abs(p.value - q.value) > 0.01 * max(a.step.seconds, b.step.seconds):
            out.append((f"  {p.name}", p.value, q.value, "s"))
    out.append(("model TFLOPS", a.step.model_tflops, b.step.model_tflops, ""))
    out.append(("GPU memory", a.memory.device_gib, b.memory.device_gib, "GiB"))
    risk, other = a.memory.oom_probability, b.memory.oom_probability
    if risk is not None and other is not None and max(risk, other) >= 0.005:
        out.append(("risk of OOM %", 100 * risk, 100 * other, ""))
    return out


def _number_line(label: str, v: float, w: float, unit: str) -> Line:
    return [
        ("  ", ""),
        (f"{label:<{NAME}}", "muted"),
        (f"{three(v):>{CELL}}{three(w):>{CELL}}", ""),
        *difference(v, w, unit),
    ]


def difference(v: float, w: float, unit: str) -> list[Span]:
    """How the second stands beside the first: +0.4 s (+12 %), or about the same."""
    delta = w - v
    if abs(delta) < 0.005 * max(abs(v), abs(w)):
        return [("   about the same", "muted")]
    share = f" ({'+' if delta > 0 else '-'}{percent_words(abs(delta / v))})" if v else ""
    return [(f"   {delta:+.3g}{' ' + unit if unit else ''}{share}", "muted")]


def turned_line(before: Plan, now: Plan) -> Line:
    """What turning numbers has changed so far, in one line."""
    pace, was = now.step.tokens_per_second_per_gpu, before.step.tokens_per_second_per_gpu
    gib = now.memory.device_gib - before.memory.device_gib
    return [
        ("now     ", "head"),
        (f"{three(now.step.seconds)} s", "strong"),
        (f" ({_change(before.step.seconds, now.step.seconds)}), ", "muted"),
        (f"{now.memory.device_gib:.0f} GiB", "strong"),
        (f" ({gib:+.0f}), " if abs(gib) >= 0.5 else " (the same), ", "muted"),
        (f"{pace:,.0f} tokens/s per GPU", "strong"),
        (f" ({_change(was, pace)}) beside where you began", "muted"),
    ]


def _change(before: float, now: float) -> str:
    if not before or abs(now - before) < 0.005 * before:
        return "the same"
    return f"{'+' if now > before else '-'}{percent_words(abs(now / before - 1))}"


def asked_line(table: PlanRequest, asked: PlanRequest | None) -> list[Line]:
    """What question a turned layout answers, where that is another than the table's."""
    if asked is None:
        return []
    said = [f"{asked.gpus} GPUs"] if asked.gpus != table.gpus else []
    if (asked.global_batch_size, asked.seq_length) != (table.global_batch_size, table.seq_length):
        said.append(f"batch {asked.global_batch_size} x {asked.seq_length}")
    return (
        [[("for     ", "head"), (" and ".join(said) + ", other than the rows above", "accent")]]
        if said
        else []
    )
