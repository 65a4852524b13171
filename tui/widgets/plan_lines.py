"""Owns how a plan is said: table rows, the detail of one, two compared, what was rejected. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gpt_tune.layouts.layout import Layout, Recompute
from gpt_tune.memory.types import MemoryEstimate, StageMemory
from gpt_tune.planner.types import Plan, Problem, Rejected
from gpt_tune.timing.types import StepEstimate
from gpt_tune.words import percent_words
from tui.widgets.bars import Part, against_limit, legend, stacked
from tui.widgets.columns import Column
from tui.widgets.paint import Cell, Line
from tui.widgets.rows import Row
from tui.widgets.words import three

COLUMNS = (
    Column("#", "right"),
    Column("TP", "right"),
    Column("PP", "right"),
    Column("DP", "right"),
    Column("ZeRO", "right"),
    Column("MBS", "right"),
    Column("recompute"),
    Column("step s", "right"),
    Column("MFU", "right"),
    Column("GiB per GPU", drop=1),
    Column("why", drop=2, grow=True, least=12),
)
GAUGE = 10  # cells of the memory bar in the table

STEP_PARTS = (
    ("compute", "compute", "C"),
    ("TP", "tensor_parallel", "T"),
    ("CP", "context_parallel", "X"),
    ("EP", "expert_parallel", "E"),
    ("bubble", "pipeline_bubble", "B"),
    ("PP", "pipeline_p2p", "P"),
    ("DP", "data_parallel", "D"),
    ("optimizer", "optimizer", "O"),
    ("other", "other", "o"),
)


def recompute_words(recompute: Recompute) -> str:
    """`none`, `selective`, `full/1`, `block/4`."""
    if recompute.granularity != "full":
        return recompute.granularity
    name = "full" if recompute.method != "block" else "block"
    return f"{name}/{recompute.layers}" if recompute.layers else name


def layout_words(layout: Layout) -> str:
    """A layout in one short line."""
    words = [f"TP {layout.tensor_parallel}", f"PP {layout.pipeline_parallel}", f"DP {layout.data_parallel}"]
    words += [f"CP {layout.context_parallel}"] if layout.context_parallel > 1 else []
    words += [f"EP {layout.expert_parallel}"] if layout.expert_parallel > 1 else []
    words += [f"VP {layout.virtual_pipeline}"] if layout.virtual_pipeline > 1 else []
    words += [f"ZeRO-{layout.zero_stage}", f"MBS {layout.micro_batch_size}"]
    return "  ".join([*words, f"recompute {recompute_words(layout.recompute)}"])


def layout_letters(layout: Layout) -> str:
    """A layout as short as it gets, for a table: `T2 P8 D4 Z1 M1 none`."""
    more = f"C{layout.context_parallel} " if layout.context_parallel > 1 else ""
    more += f"E{layout.expert_parallel} " if layout.expert_parallel > 1 else ""
    head = f"T{layout.tensor_parallel} P{layout.pipeline_parallel} {more}D{layout.data_parallel}"
    return f"{head} Z{layout.zero_stage} M{layout.micro_batch_size} {recompute_words(layout.recompute)}"


def table_row(plan: Plan, key: str, mark: str = "") -> Row:
    layout, step, memory = plan.layout, plan.step, plan.memory
    spread = max(step.high - step.seconds, step.seconds - step.low)
    cells: tuple[Cell, ...] = (
        mark or str(plan.rank),
        str(layout.tensor_parallel),
        str(layout.pipeline_parallel),
        str(layout.data_parallel),
        str(layout.zero_stage),
        str(layout.micro_batch_size),
        recompute_words(layout.recompute),
        [(three(step.seconds), "strong"), (f" ±{short(spread)}", "muted")],
        "?" if step.mfu is None else percent_words(step.mfu),
        [(f"{memory.device_gib:>3.0f} ", ""), *gauge(memory)],
        [(plan.reasons[0].text if plan.reasons else "", "muted")],
    )
    return Row(key, cells)


def gauge(memory: MemoryEstimate) -> Line:
    """Memory against the limit in a few cells, with a word where it is likely not to fit."""
    part = [Part("memory", memory.device_gib, "m")]
    line = list(against_limit(part, memory.high_gib, memory.limit_gib, GAUGE))
    risk = memory.oom_probability
    return [*line, (" tight", "warn")] if risk is not None and risk > 0.2 else line


def short(value: float) -> str:
    """An uncertainty with one significant figure: .2, 12, 0.03."""
    text = f"{value:.1g}" if value < 10 else f"{value:.0f}"
    return text[1:] if text.startswith("0.") else text


def detail(plan: Plan, width: int, letters: bool, every_stage: bool) -> list[Line]:
    """Step time by cause, memory by stage, reasons with their rule."""
    lines: list[Line] = []
    lines += _step_lines(plan.step, width, letters)
    lines += _memory_lines(plan.memory, width, letters, every_stage)
    for i, reason in enumerate(plan.reasons):
        lines.append(
            [
                ("why     " if i == 0 else "        ", "head"),
                (reason.text, ""),
                (f"  [{reason.rule}]", "muted"),
            ]
        )
    for name in plan.memory.not_modelled:
        lines.append([("        ", ""), (f"not in the estimate: {name}", "muted")])
    return lines


def _step_lines(step: StepEstimate, width: int, letters: bool) -> list[Line]:
    parts = step_parts(step)
    span = f"{three(step.low)} to {three(step.high)} s (9 of 10)"
    speed = f"{step.model_tflops:.0f} model TFLOPS, {step.tokens_per_second_per_gpu:,.0f} tokens/s per GPU"
    return [
        [("step    ", "head"), *stacked(parts, max(width - 10, 10), letters=letters)],
        [("        ", ""), *legend(parts, "s", letters)],
        [("        ", ""), (f"{span}; {speed}", "muted")],
    ]


def step_parts(step: StepEstimate) -> list[Part]:
    return [Part(name, getattr(step, key), letter) for name, key, letter in STEP_PARTS]


def memory_parts(stage: StageMemory) -> list[Part]:
    return [
        Part("states", stage.parameters + stage.gradients + stage.optimizer, "S"),
        Part("activations", stage.activations, "A"),
        Part("logits", stage.logits, "L"),
        Part("buffers", stage.buffers + stage.transient, "B"),
        Part("outside", stage.reserved_gap + stage.context, "o"),
    ]


def _memory_lines(memory: MemoryEstimate, width: int, letters: bool, every_stage: bool) -> list[Line]:
    lines: list[Line] = []
    spread = memory.high_gib / memory.device_gib if memory.device_gib else 1.0
    narrow = memory.low_gib / memory.device_gib if memory.device_gib else 1.0
    for i, stage in enumerate(shown_stages(memory.stages, every_stage)):
        bar = against_limit(
            memory_parts(stage),
            stage.total * spread,
            memory.limit_gib,
            max(width - 30, 10),
            letters,
            stage.total * narrow,
        )
        lines.append(
            [
                ("memory  " if i == 0 else "        ", "head"),
                (f"stage {stage.stage:<3}", ""),
                *bar,
                (f" {stage.total:.0f} GiB", ""),
            ]
        )
    worst = max(memory.stages, key=lambda s: s.total, default=None)
    if worst is not None:
        lines.append([("        ", ""), *legend(memory_parts(worst), "GiB", letters)])
    lines.append([("        ", ""), *_limit_words(memory, letters)])
    return lines


def shown_stages(stages: Sequence[StageMemory], every: bool) -> list[StageMemory]:
    """First, fullest and last stage, unless there is room for all."""
    if every or len(stages) <= 3:
        return list(stages)
    worst = max(stages, key=lambda s: s.total)
    return sorted({s.stage: s for s in (stages[0], worst, stages[-1])}.values(), key=lambda s: s.stage)


def _limit_words(memory: MemoryEstimate, letters: bool) -> Line:
    """The interval, the limit, and the risk: which is smaller than the interval makes believe, and why."""
    span = f"{memory.low_gib:.0f} to {memory.high_gib:.0f} GiB in 9 of 10 runs ({'░' if letters else '▓ ░'})"
    if memory.limit_gib is None:
        return [(f"{span}; this GPU's memory is not known", "muted")]
    risk = memory.oom_probability or 0.0
    role = "bad" if risk > 0.5 else "warn" if risk > 0.2 else "muted"
    over = memory.high_gib > memory.limit_gib
    return [
        (f"{span}; ┃ limit {memory.limit_gib:.0f} GiB; ", "muted"),
        (risk_words(risk), role),
        (f": {GIVEN_BACK}" if over and risk < 0.5 else "", "muted"),
    ]


# Why a risk is small although the interval reaches over the limit (gpt_tune.memory.uncertainty).
GIVEN_BACK = (
    "part of what is above the limit only lies in the allocator's reserve, and it gives that back first"
)


def risk_words(risk: float) -> str:
    """The chance of running out of memory, in words where it is next to nothing or next to certain."""
    if risk < 0.005:
        return "no risk of running out"
    if risk > 0.995:
        return "runs out for certain"
    return f"risk of running out {percent_words(risk)}"


def rejected_rows(rejected: Sequence[Rejected]) -> list[Row]:
    return [
        Row(
            str(i),
            (
                layout_letters(r.layout),
                [(r.text, ""), (f"  [{r.rule}]", "muted")],
                [(f"→ {r.fix}" if r.fix else "", "good")],
            ),
        )
        for i, r in enumerate(rejected)
    ]


REJECTED_COLUMNS = (
    Column("layout", most=44),
    Column("why not", grow=True, least=24),
    Column("instead", drop=1, most=40),
)


def rejected_lines(rejected: Rejected) -> list[Line]:
    return [
        [(layout_words(rejected.layout), "strong")],
        [("why not ", "head"), (rejected.text, ""), (f"  [{rejected.rule}]", "muted")],
        [("instead ", "head"), (rejected.fix or "nothing nearby", "good")],
    ]


def problem_lines(problems: Sequence[Problem]) -> list[Line]:
    lines: list[Line] = []
    for problem in problems:
        lines.append([("! ", "bad"), (problem.text, "bad"), (f"  [{problem.rule}]", "muted")])
        lines += [[("  instead: ", "muted"), (problem.fix, "good")]] if problem.fix else []
    return lines
