"""Owns the ranked table of the plan screen: its columns for this trainer and these layouts, and its rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpt_tune.layouts.layout import Layout, Recompute
from gpt_tune.layouts.trainers import is_finetune
from gpt_tune.memory.types import MemoryEstimate
from gpt_tune.planner.types import Plan, Rejected
from gpt_tune.words import percent_words
from tui.widgets.bars import Part, against_limit
from tui.widgets.columns import Column
from tui.widgets.paint import Cell, Line
from tui.widgets.rows import Row
from tui.widgets.words import three

GAUGE = 10  # cells of the memory bar in the table


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column with what stands in it. plain: the value that says nothing; "" for a column that is always there."""

    column: Column
    cell: Callable[[Plan], Cell]
    plain: str = ""


def recompute_words(recompute: Recompute) -> str:
    """`none`, `selective`, `full/1`, `block/4`."""
    if recompute.granularity != "full":
        return recompute.granularity
    name = "full" if recompute.method != "block" else "block"
    return f"{name}/{recompute.layers}" if recompute.layers else name


def strategy_words(layout: Layout) -> str:
    """What shares the state of a fine-tuning job."""
    return "DDP" if layout.zero_stage == 0 else f"ZeRO-{layout.zero_stage}"


def _number(label: str, of: Callable[[Layout], object], plain: str = "", drop: int = 0) -> TableColumn:
    return TableColumn(Column(label, "right", drop=drop), lambda plan: str(of(plan.layout)), plain)


_GPUS = _number("GPUs", lambda x: x.gpus)
_BATCH = _number("batch", lambda x: x.global_batch_size)
_MICRO = _number("MBS", lambda x: x.micro_batch_size, drop=1)
_PRETRAINING = (
    _number("TP", lambda x: x.tensor_parallel),
    _number("PP", lambda x: x.pipeline_parallel),
    _number("VP", lambda x: x.virtual_pipeline, "1"),
    _number("CP", lambda x: x.context_parallel, "1"),
    _number("EP", lambda x: x.expert_parallel, "1"),
    _number("DP", lambda x: x.data_parallel),
    _number("ZeRO", lambda x: x.zero_stage),
    _MICRO,
    _number("SP", lambda x: "sp" if x.sequence_parallel else "-", "-", 3),
    TableColumn(Column("recompute", drop=2), lambda plan: recompute_words(plan.layout.recompute)),
)
_FINE_TUNING = (
    TableColumn(Column("strategy"), lambda plan: strategy_words(plan.layout)),
    _number("GPUs", lambda x: x.gpus),
    _MICRO,
    _number("accum", lambda x: x.gradient_accumulation_steps),
    TableColumn(Column("checkpointing"), lambda plan: "no" if plan.layout.recompute.granularity == "none" else "yes"),
)  # fmt: skip
_PREDICTED = (
    TableColumn(Column("step s", "right"), lambda plan: _step_cell(plan)),
    TableColumn(Column("MFU", "right", drop=4), lambda plan: _mfu_cell(plan)),
    TableColumn(Column("GiB", "right"), lambda plan: f"{plan.memory.device_gib:.0f}"),
    TableColumn(Column("of limit", drop=5), lambda plan: gauge(plan.memory)),
    TableColumn(Column("why", drop=6, grow=True, least=12), lambda plan: [(_first_reason(plan), "muted")]),
)


def columns_for(plans: Sequence[Plan]) -> tuple[TableColumn, ...]:
    """Those that every layout has, and those in which one of these layouts says something."""
    if plans and is_finetune(plans[0].trainer):
        return (*_FINE_TUNING, *(c for c in _PREDICTED if c.column.label != "MFU"))
    varying = [c for c, of in ((_GPUS, "gpus"), (_BATCH, "global_batch_size")) if _vary(plans, of)]
    splits = [c for c in _PRETRAINING if not c.plain or any(c.cell(plan) != c.plain for plan in plans)]
    return (*varying, *splits, *_PREDICTED)


def _vary(plans: Sequence[Plan], name: str) -> bool:
    return len({getattr(plan.layout, name) for plan in plans}) > 1


def table(plans: Sequence[Plan], keys: Sequence[str], marks: Sequence[str]) -> tuple[list[Column], list[Row]]:
    """Columns and rows of the ranked table. marks: what stands in the first column."""
    shown = columns_for(plans)
    columns = [Column("#", "right"), *(c.column for c in shown)]
    rows = [
        Row(k, (mark, *(c.cell(p) for c in shown))) for p, k, mark in zip(plans, keys, marks, strict=True)
    ]
    return columns, rows


def _step_cell(plan: Plan) -> Line:
    step = plan.step
    spread = max(step.high - step.seconds, step.seconds - step.low)
    return [(three(step.seconds), "strong"), (f" ±{short(spread)}", "muted")]


def _mfu_cell(plan: Plan) -> str:
    return "?" if plan.step.mfu is None else percent_words(plan.step.mfu)


def _first_reason(plan: Plan) -> str:
    return plan.reasons[0].text if plan.reasons else ""


def gauge(memory: MemoryEstimate) -> Line:
    """Memory against the limit in a few cells, with a word where it is likely not to fit."""
    if memory.limit_gib is None:
        return [("not known", "muted")]
    part = [Part("memory", memory.device_gib, "m")]
    line = list(against_limit(part, memory.high_gib, memory.limit_gib, GAUGE))
    risk = memory.oom_probability
    return [*line, (" tight", "warn")] if risk is not None and risk > 0.2 else line


def short(value: float) -> str:
    """An uncertainty with one significant figure: .2, 12, 0.03."""
    text = f"{value:.1g}" if value < 9.5 else f"{value:.0f}"
    return text[1:] if text.startswith("0.") else text


# --- rejected


def layout_words(layout: Layout, finetune: bool = False) -> str:
    """A layout in one short line."""
    if finetune:
        kept = "no checkpointing" if layout.recompute.granularity == "none" else "checkpointing"
        size = f"MBS {layout.micro_batch_size} x {layout.gradient_accumulation_steps}"
        return "  ".join([strategy_words(layout), f"{layout.gpus} GPUs", size, kept])
    words = [f"TP {layout.tensor_parallel}", f"PP {layout.pipeline_parallel}", f"DP {layout.data_parallel}"]
    words += [f"CP {layout.context_parallel}"] if layout.context_parallel > 1 else []
    words += [f"EP {layout.expert_parallel}"] if layout.expert_parallel > 1 else []
    words += [f"VP {layout.virtual_pipeline}"] if layout.virtual_pipeline > 1 else []
    words += [
        f"ZeRO-{layout.zero_stage}",
        f"MBS {layout.micro_batch_size} x {layout.gradient_accumulation_steps}",
    ]
    words += ["SP"] if layout.sequence_parallel else []
    words += [] if layout.flash_attention else ["no flash"]
    return "  ".join([*words, f"recompute {recompute_words(layout.recompute)}"])


def layout_letters(layout: Layout, finetune: bool = False) -> str:
    """A layout as short as it gets, for a table: `T2 P8 D4 Z1 M1 none`."""
    if finetune:
        kept = "no ckpt" if layout.recompute.granularity == "none" else "ckpt"
        return (
            f"{strategy_words(layout)} M{layout.micro_batch_size}x{layout.gradient_accumulation_steps} {kept}"
        )
    more = f"V{layout.virtual_pipeline} " if layout.virtual_pipeline > 1 else ""
    more += f"C{layout.context_parallel} " if layout.context_parallel > 1 else ""
    more += f"E{layout.expert_parallel} " if layout.expert_parallel > 1 else ""
    head = f"T{layout.tensor_parallel} P{layout.pipeline_parallel} {more}D{layout.data_parallel}"
    tail = (" sp" if layout.sequence_parallel else "") + ("" if layout.flash_attention else " no flash")
    return f"{head} Z{layout.zero_stage} M{layout.micro_batch_size}{tail} {recompute_words(layout.recompute)}"


REJECTED_COLUMNS = (
    Column("layout", most=44),
    Column("why not", grow=True, least=24),
    Column("instead", drop=1, most=40),
)


def rejected_columns(shown: int, all_of_them: int) -> tuple[Column, ...]:
    """How many there are stands where the reader looks."""
    first, why, last = REJECTED_COLUMNS
    if all_of_them <= shown:
        return REJECTED_COLUMNS
    return (first, replace(why, label=f"why not (the nearest {shown} of {all_of_them:,})"), last)


def rejected_rows(rejected: Sequence[Rejected], finetune: bool = False) -> list[Row]:
    return [
        Row(
            str(i),
            (
                layout_letters(r.layout, finetune),
                [(r.text, ""), (f"  [{r.rule}]", "muted")],
                [(f"→ {r.fix}" if r.fix else "", "good")],
            ),
        )
        for i, r in enumerate(rejected)
    ]
