"""Owns two layouts side by side in words: what differs is marked and comes first, then what is the same. Pure."""

from __future__ import annotations

from gpt_tune.planner.types import Plan, PlanRequest
from gpt_tune.words import percent_words
from gpt_tune.workflows.turnables import AUTOMATIC
from gpt_tune.workflows.two_plans import Figure, two_plans
from tui.cli.compare_text import LABELS, PARTS, change_words, value_words
from tui.widgets.paint import Line, Span
from tui.widgets.words import three

DIFFERS = "≠ "  # a sign as well as a colour
NAME, CELL = 16, 13


def compared(a: Plan, b: Plan, names: tuple[str, str]) -> list[Line]:
    """Every field of two layouts, then what they are predicted to come to."""
    both = two_plans(a, b)
    lines: list[Line] = [
        [(f"{'':{NAME + 2}}{names[0]:>{CELL}}{names[1]:>{CELL}}", "head"), ("   difference", "head")]
    ]
    for key, (x, y) in both.differ.items():
        label = LABELS.get(key, key)
        lines.append(
            [
                (DIFFERS, "warn"),
                (f"{label:<{NAME}}", ""),
                (f"{value_words(key, x):>{CELL}}{value_words(key, y):>{CELL}}", "strong"),
            ]
        )
    lines += [_figure_line(figure) for figure in both.figures]
    if both.same:
        same = ", ".join(
            f"{LABELS.get(key, key)} {value_words(key, value)}" for key, value in both.same.items()
        )
        lines.append([("same    ", "muted"), (same, "muted")])
    return lines


def _figure_line(figure: Figure) -> Line:
    label = f"  {PARTS[figure.key]}" if figure.part else LABELS.get(figure.key, figure.key)
    scale = 100 if figure.key == "oom_probability" else 1
    a, b = scale * figure.a, scale * figure.b
    return [
        ("  ", ""),
        (f"{label:<{NAME}}", "muted"),
        (f"{three(a):>{CELL}}{three(b):>{CELL}}", ""),
        *difference(a, b, figure.unit),
    ]


def difference(v: float, w: float, unit: str) -> list[Span]:
    """How the second stands beside the first."""
    return [(f"   {change_words(v, w, unit)}", "muted")]


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
    if asked.trainer != table.trainer:
        said.append(f"gradients added up in {asked.trainer.gradient_accumulation_dtype or AUTOMATIC}")
    return (
        [[("for     ", "head"), (" and ".join(said) + ", other than the rows above", "accent")]]
        if said
        else []
    )
