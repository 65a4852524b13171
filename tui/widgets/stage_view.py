"""Owns the memory of every pipeline stage at once: a picture with the limit in it, then each stage by cause. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpt_tune.memory.types import MemoryEstimate, StageMemory
from tui.widgets.bars import ROLES, legend
from tui.widgets.paint import Line, Span
from tui.widgets.plan_lines import limit_words, memory_parts

AXIS = 10  # cells left of the picture
_EIGHTHS = "▁▂▃▄▅▆▇█"
_WIDEST = 12  # cells of one stage's bar
_NUMBER = 7  # cells of a number: all causes fit 80 columns
_CAUSES: tuple[tuple[str, Callable[[StageMemory], float]], ...] = (
    ("weight", lambda s: s.parameters),
    ("grads", lambda s: s.gradients),
    ("optim", lambda s: s.optimizer),
    ("activ", lambda s: s.activations),
    ("logits", lambda s: s.logits),
    ("buffer", lambda s: s.buffers + s.transient),
    ("cached", lambda s: s.reserved_gap),
    ("CUDA", lambda s: s.context),
    ("total", lambda s: s.total),
)


_LEGEND = (
    "All in GiB. buffer: communication and passing ones. cached: PyTorch's reserve, given back before it fails. "
    "CUDA: its context and NCCL. !: the fullest stage."
)


def stage_lines(memory: MemoryEstimate, width: int, height: int, letters: bool) -> list[Line]:
    """Everything about memory: height is that of the picture."""
    stages = memory.stages
    lines: list[Line] = [_head(memory)]
    if len(stages) > 1:
        lines += picture(memory, width, height, letters)
    if stages:
        worst = max(stages, key=lambda s: s.total)
        lines.append([("  ", ""), *legend(memory_parts(worst), "GiB", letters)])
    lines.append([("  ", ""), *limit_words(memory, letters)])
    lines += _numbers(stages)
    lines.append([(_LEGEND, "muted")])
    return lines


def _head(memory: MemoryEstimate) -> Line:
    peak = memory.peak_phase.replace("_", "/")
    worst = max(memory.stages, key=lambda s: s.total, default=None)
    where = f" in stage {worst.stage}" if worst is not None and len(memory.stages) > 1 else ""
    return [
        ("memory  ", "head"),
        (f"{memory.device_gib:.0f} GiB", "strong"),
        (f"{where} at {peak}; ", "muted"),
        (f"allocated {memory.allocated_gib:.0f}, reserved {memory.reserved_gib:.0f}", ""),
    ]


def picture(memory: MemoryEstimate, width: int, height: int, letters: bool) -> list[Line]:
    """Every stage as an upright bar of its parts, `░` up to the interval's end, a line at the limit."""
    groups = _grouped(memory.stages, max(width - AXIS - 1, 8))
    bar = max(1, min(_WIDEST, (width - AXIS - 1) // len(groups)))
    gap = 1 if bar >= 3 else 0
    spread = memory.high_gib / memory.device_gib if memory.device_gib else 1.0
    top = max([memory.limit_gib or 0.0, memory.high_gib, *(s.total for s in memory.stages)]) * 1.02
    lines: list[Line] = []
    limit_row = None if memory.limit_gib is None else min(int(memory.limit_gib / top * height), height - 1)
    for row in reversed(range(height)):
        line: list[Span] = [_axis(row, height, top, limit_row, memory.limit_gib)]
        for group in groups:
            sign, role = _cell(group, row / height * top, (row + 1) / height * top, spread, letters)
            if sign == " " and row == limit_row:
                line.append(("─" * bar, "bad"))
            else:
                line += [(sign * (bar - gap), role), (" " * gap, "")]
        lines.append(line)
    return [*lines, _feet(groups, bar)]


def _grouped(stages: Sequence[StageMemory], room: int) -> list[StageMemory]:
    """One stage a bar; where there are more than room, the fullest of each few neighbours."""
    each = -(-len(stages) // room)
    return [max(stages[i : i + each], key=lambda s: s.total) for i in range(0, len(stages), each)]


def _cell(stage: StageMemory, low: float, high: float, spread: float, letters: bool) -> Span:
    """What is between these heights of a stage's bar; where the bar ends in it, as much of the cell as it fills."""
    end = low if stage.total < low else min(stage.total, high)
    middle = (low + end) / 2
    if stage.total <= low + (high - low) / 16 or (letters and stage.total < (low + high) / 2):
        return ("░", "unsure") if (low + high) / 2 <= stage.total * spread else (" ", "")
    below = 0.0
    parts = memory_parts(stage)
    thin = (high - low) / 2  # what is thinner would show up here and there, and say nothing
    parts = [part if part.value >= thin else replace(part, value=0.0) for part in parts]
    middle *= sum(part.value for part in parts) / stage.total if stage.total else 1.0
    at = next((i for i, part in enumerate(parts) if (below := below + part.value) >= middle), len(parts) - 1)
    if letters:
        return parts[at].letter, f"part-{at % ROLES}"
    return _EIGHTHS[min(max(round(8 * (end - low) / (high - low)), 1), 8) - 1], f"part-{at % ROLES}"


def _axis(row: int, height: int, top: float, limit_row: int | None, limit: float | None) -> Span:
    if row == limit_row and limit is not None:
        return f"{f'limit {limit:.0f}':>{AXIS - 1}} ", "bad"
    named = row % max(2, height // 4) == 0 and row != 0 and (limit_row is None or abs(row - limit_row) > 1)
    return (f"{(row + 0.5) / height * top:>{AXIS - 1}.0f} " if named else " " * AXIS), "muted"


def _feet(groups: Sequence[StageMemory], bar: int) -> Line:
    """Numbers of stages under the bars, as many as have room."""
    text = ""
    for i, stage in enumerate(groups):
        at = i * bar
        if at >= len(text) + (1 if text else 0):
            text += " " * (at - len(text)) + str(stage.stage)
    return [(f"{'stage ':>{AXIS}}", "muted"), (text, "muted")]


def _numbers(stages: Sequence[StageMemory]) -> list[Line]:
    """A row a stage; the fullest is set off."""
    lines: list[Line] = [[("stage" + "".join(f"{name:>{_NUMBER}}" for name, _ in _CAUSES), "head")]]
    worst = max((s.total for s in stages), default=0.0)
    for stage in stages:
        numbers = "".join(f"{of(stage):>{_NUMBER}.1f}" for _, of in _CAUSES)
        mark = "!" if len(stages) > 1 and stage.total == worst else " "
        lines.append([(f"{mark}{stage.stage:>4}", "strong"), (numbers, "strong" if mark == "!" else "")])
    return lines
