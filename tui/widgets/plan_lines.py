"""Owns how one plan is said: cost, step and memory by cause, reasons; and what is wrong with one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpt_tune.memory.types import MemoryEstimate, StageMemory
from gpt_tune.planner.types import Plan, Problem, Reason, Rejected
from gpt_tune.timing.types import StepEstimate
from gpt_tune.words import percent_words
from tui.widgets.bars import Part, against_limit, legend, stacked
from tui.widgets.paint import Line
from tui.widgets.plan_table import layout_words
from tui.widgets.words import three

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


@dataclass(frozen=True, slots=True)
class Told:
    """What is said beside a plan's own numbers. sure: in a few words; rests_on: in full. binding: what limits it."""

    cost: str = ""
    sure: str = ""
    binding: str = ""
    rests_on: str = ""
    command: str = ""


NOTHING = Told()


def detail(plan: Plan, width: int, letters: bool, every_stage: bool, told: Told = NOTHING) -> list[Line]:
    """What it costs, step time by cause, how sure that is, memory by stage, reasons with their rule and source."""
    lines: list[Line] = []
    if told.cost:
        lines.append([("cost    ", "head"), (told.cost, "")])
    lines += _step_lines(plan.step, width, letters)
    if told.sure:
        lines.append([("sure?   ", "head"), (told.sure, "muted")])
    if told.binding:
        lines.append([("binding ", "head"), (told.binding, "")])
    lines += _memory_lines(plan.memory, width, letters, every_stage)
    lines += reason_lines(plan.reasons)
    if plan.environment:
        needs = " ".join(f"{key}={value}" for key, value in plan.environment.items())
        lines.append([("needs   ", "head"), (needs, "")])
    for name in plan.memory.not_modelled:
        lines.append([("        ", ""), (f"not in the estimate: {name}", "muted")])
    if told.rests_on:
        lines.append([("rests on", "head"), (f" {told.rests_on}", "muted")])
    if told.command:
        lines.append([("command ", "head"), (told.command, "muted"), ("  (y copies it)", "muted")])
    return lines


def reason_lines(reasons: Sequence[Reason]) -> list[Line]:
    """Each reason with its rule, and with where the rule comes from."""
    lines: list[Line] = []
    for i, reason in enumerate(reasons):
        source = "" if reason.source.startswith("gpt-tune") else f" {reason.source}"
        head = "why     " if i == 0 else "        "
        lines.append([(head, "head"), (reason.text, ""), (f"  [{reason.rule}]{source}", "muted")])
    return lines


def _step_lines(step: StepEstimate, width: int, letters: bool) -> list[Line]:
    parts = step_parts(step)
    span = f"{three(step.low)} to {three(step.high)} s (9 of 10 runs)"
    speed = f"{step.model_tflops:.0f} model TFLOPS, {step.tokens_per_second_per_gpu:,.0f} tokens/s a GPU"
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
        more = f"GiB; m: all {len(memory.stages)} stages" if len(memory.stages) > 1 and width > 90 else "GiB"
        lines.append([("        ", ""), *legend(memory_parts(worst), more, letters)])
    lines.append([("        ", ""), *limit_words(memory, letters)])
    return lines


def shown_stages(stages: Sequence[StageMemory], every: bool) -> list[StageMemory]:
    """First, fullest and last stage, unless there is room for all."""
    if every or len(stages) <= 3:
        return list(stages)
    worst = max(stages, key=lambda s: s.total)
    return sorted({s.stage: s for s in (stages[0], worst, stages[-1])}.values(), key=lambda s: s.stage)


def limit_words(memory: MemoryEstimate, letters: bool) -> Line:
    """The interval, the limit, and the risk: which is smaller than the interval makes believe, and why."""
    span = f"{memory.low_gib:.0f} to {memory.high_gib:.0f} GiB {'░' if letters else '▓░'} (9/10)"
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


def rejected_lines(rejected: Rejected, finetune: bool = False) -> list[Line]:
    """Why a near miss lost, and the one change with which it would not have."""
    return [
        [(layout_words(rejected.layout, finetune), "strong")],
        [("why not ", "head"), (rejected.text, ""), (f"  [{rejected.rule}]", "muted")],
        [("instead ", "head"), (rejected.fix or "nothing nearby", "good")],
    ]


def problem_lines(problems: Sequence[Problem]) -> list[Line]:
    lines: list[Line] = []
    for problem in problems:
        lines.append([("! ", "bad"), (problem.text, "bad"), (f"  [{problem.rule}]", "muted")])
        lines += [[("  instead: ", "muted"), (problem.fix, "good")]] if problem.fix else []
    return lines
