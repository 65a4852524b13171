"""Owns a plan in words and tables for people."""

from __future__ import annotations

import textwrap

from gpt_tune.calibration.constants import Calibration
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.layouts.trainers import is_finetune
from gpt_tune.models import parameters
from gpt_tune.planner.sure import sure_words
from gpt_tune.planner.types import Plan, PlanRequest, Rejected, SearchResult
from gpt_tune.words import count_words, percent_words, seconds_words
from tui.cli.output import show, show_table, width
from tui.widgets.words import plural

_STEP_PARTS = (
    ("compute", "compute"), ("tensor_parallel", "TP"), ("context_parallel", "CP"), ("expert_parallel", "EP"),
    ("pipeline_bubble", "bubble"), ("pipeline_p2p", "PP"), ("data_parallel", "DP"), ("optimizer", "optimizer"),
    ("other", "other"),
)  # fmt: skip
_MEMORY_PARTS = (
    ("parameters", "weights"), ("gradients", "grads"), ("optimizer", "optim."), ("activations", "activ."),
    ("logits", "logits"), ("buffers", "buffers"), ("transient", "transient"), ("reserved_gap", "reserved"),
    ("context", "context"), ("total", "total"),
)  # fmt: skip


def show_search(
    request: PlanRequest,
    result: SearchResult,
    calibration: Calibration,
    ordered: tuple[Plan, ...] = (),
    reasons: bool = True,
) -> None:
    """The layouts (in the order given), why number 1 is first, what nearly made it, and how sure all that is.

    reasons: False where other layouts than number 1 are told of after this.
    """
    show(question_words(request))
    show(
        f"{plural(result.searched, 'layout')} tried in {result.seconds:.2f} s, {result.rejected_count:,} rejected"
    )
    for line in objective_lines(request, result):
        show(line)
    show()
    if result.plans:
        show_plans(ordered or result.plans, compare=len(request.global_batch_sizes) > 1)
        if reasons:
            _show_reasons(result.plans[0], "why number 1:")
    elif any(tried.seconds is not None for tried in result.tried):
        show("Nothing is fast enough.")
    elif any(near.rule == "out-of-memory" for near in result.rejected):
        show("Nothing fits.")
    else:
        show("No layout is possible.")
    if result.rejected and reasons:
        show()
        show("rejected, nearest first:")
        for near in _one_a_rule(result.rejected)[: 3 if result.plans else 8]:
            _point(
                f"{layout_words(near.layout, request.trainer)}: {near.text} [{near.rule}]"
                + (f" Fix: {near.fix}" if near.fix else "")
            )
    show()
    _wrapped(sure_words(calibration, request))


def _one_a_rule(rejected: tuple[Rejected, ...]) -> list[Rejected]:
    """The nearest of each rule first, then the others: three of a kind say no more than one."""
    first = {near.rule: near for near in reversed(rejected)}
    chosen = [near for near in rejected if first[near.rule] is near]
    return [*chosen, *(near for near in rejected if first[near.rule] is not near)]


def objective_lines(request: PlanRequest, result: SearchResult) -> list[str]:
    """What was looked for when it is not the fastest step, and what came of it."""
    if request.objective == "headroom":
        return [f"most memory left first, among layouts within {request.within:.0%} of the fastest"]
    if request.objective != "gpus":
        return []
    wanted = f" with a step of at most {request.target_seconds:g} s" if request.target_seconds else ""
    lines = [f"  {tried.text}" for tried in result.tried[-4:]]
    if result.gpus is None:
        return [f"no number of GPUs up to {request.gpus} is enough{wanted}:", *lines]
    return [*lines, f"fewest GPUs{wanted}: {result.gpus}"]


def question_words(request: PlanRequest) -> str:
    """The question in one line."""
    node = request.node
    size = count_words(parameters.total(request.model))
    nodes = -(-request.gpus // node.gpus_per_node)
    batch = ", ".join(map(str, request.global_batch_sizes)) or request.global_batch_size
    return (
        f"{request.model.id} ({size} parameters, {request.seq_length} tokens, global batch "
        f"{batch}) on {request.gpus} {node.gpu.id}, {nodes} x {node.id}"
    )


def show_plans(plans: tuple[Plan, ...], compare: bool = False) -> None:
    """The ranked table; columns nobody uses are left out, and in a narrow terminal those that others imply.

    compare: several global batch sizes, told apart by the tokens a second they train.
    """
    narrow = (width() or _WIDE) < _WIDE
    columns = [c for c in _COLUMNS if c[2] == _ALWAYS or (c[2] == _WIDE_ONLY and not narrow)
               or (c[2] == _IF_USED and any(c[1](p) not in ("-", "1", "no") for p in plans))
               or (c[2] == _COMPARING and compare)]  # fmt: skip
    if compare and narrow:
        columns = [c for c in columns if c[0] not in ("GAS", "ZeRO", "OOM risk")]
    left = ("recompute", "GiB", "step")
    right = ",".join(str(i) for i, c in enumerate(columns) if c[0] not in left)
    show_table([c[0] for c in columns], [[c[1](p) for c in columns] for p in plans], right)


_WIDE = 100
_ALWAYS, _IF_USED, _WIDE_ONLY, _COMPARING = range(4)
_COLUMNS = (
    ("#", lambda p: str(p.rank), _ALWAYS),
    ("batch", lambda p: str(p.layout.global_batch_size), _COMPARING),
    ("tokens/s", lambda p: f"{p.step.tokens_per_second_per_gpu * p.layout.gpus:,.0f}", _COMPARING),
    ("TP", lambda p: str(p.layout.tensor_parallel), _IF_USED),
    ("PP", lambda p: str(p.layout.pipeline_parallel), _IF_USED),
    ("VPP", lambda p: str(p.layout.virtual_pipeline), _IF_USED),
    ("CP", lambda p: str(p.layout.context_parallel), _IF_USED),
    ("EP", lambda p: str(p.layout.expert_parallel), _IF_USED),
    ("DP", lambda p: str(p.layout.data_parallel), _ALWAYS),
    ("ZeRO", lambda p: str(p.layout.zero_stage), _ALWAYS),
    ("MBS", lambda p: str(p.layout.micro_batch_size), _ALWAYS),
    ("GAS", lambda p: str(p.layout.gradient_accumulation_steps), _ALWAYS),
    ("SP", lambda p: "yes" if p.layout.sequence_parallel else "no", _IF_USED),
    ("recompute", lambda p: short_recompute(p.layout), _ALWAYS),
    (
        "step",
        lambda p: f"{seconds_words(p.step.seconds)} +-{(p.step.high - p.step.low) / 2 / p.step.seconds:.0%}",
        _ALWAYS,
    ),
    ("model TFLOPS", lambda p: f"{p.step.model_tflops:.0f}", _WIDE_ONLY),
    ("MFU", lambda p: percent_words(p.step.mfu) if p.step.mfu is not None else "-", _ALWAYS),
    ("GiB", lambda p: short_memory(p), _ALWAYS),
    (
        "OOM risk",
        lambda p: "-" if p.memory.oom_probability is None else percent_words(p.memory.oom_probability),
        _ALWAYS,
    ),
)


def short_memory(plan: Plan) -> str:
    """Device memory of the worst stage and the limit; with its interval where there is room."""
    memory = plan.memory
    if (width() or _WIDE) >= _WIDE:
        return memory_words(plan)
    return f"{memory.device_gib:.0f}" + (f"/{memory.limit_gib:.0f}" if memory.limit_gib is not None else "")


def short_recompute(layout: Layout) -> str:
    """none, selective, full (every layer), full/4 (chunks of 4), block/5 (5 layers a stage)."""
    r = layout.recompute
    if r.granularity != "full":
        return r.granularity
    return f"block/{r.layers}" if r.method == "block" else "full" if r.layers == 1 else f"full/{r.layers}"


def _wrapped(text: str, indent: str = "") -> None:
    """A sentence, in lines as wide as the terminal."""
    columns = width()
    if columns is None:
        show(indent + text)
        return
    for line in textwrap.wrap(text, columns, initial_indent=indent, subsequent_indent=indent or "  "):
        show(line)


def _point(text: str) -> None:
    _wrapped(text, "  ")


def memory_words(plan: Plan) -> str:
    """Device memory of the worst stage, its interval and the limit."""
    memory = plan.memory
    limit = f" of {memory.limit_gib:.0f}" if memory.limit_gib is not None else ""
    return f"{memory.device_gib:.0f} ({memory.low_gib:.0f}-{memory.high_gib:.0f}){limit}"


def recompute_words(layout: Layout) -> str:
    """full/uniform/1, selective, none."""
    r = layout.recompute
    return "/".join(str(part) for part in (r.granularity, r.method, r.layers) if part is not None)


def layout_words(layout: Layout, trainer: Trainer | None = None) -> str:
    """A layout in one line; what is 1 or off is left out. trainer: fine-tuning ones have few numbers."""
    if trainer is not None and is_finetune(trainer) and layout.data_parallel == layout.gpus:
        strategy = f"ZeRO-{layout.zero_stage}" if layout.zero_stage else "DDP"
        size = f"micro batch {layout.micro_batch_size} x {layout.gradient_accumulation_steps}"
        kept = "no checkpointing" if layout.recompute.granularity == "none" else "checkpointing"
        return ", ".join([strategy, plural(layout.gpus, "GPU"), size, kept])
    words = [f"TP {layout.tensor_parallel}", f"PP {layout.pipeline_parallel}", f"DP {layout.data_parallel}"]
    for name, value in (
        ("VPP", layout.virtual_pipeline),
        ("CP", layout.context_parallel),
        ("EP", layout.expert_parallel),
    ):
        if value > 1:
            words.append(f"{name} {value}")
    words += [
        f"ZeRO {layout.zero_stage}",
        f"MBS {layout.micro_batch_size}",
        f"GAS {layout.gradient_accumulation_steps}",
    ]
    if layout.sequence_parallel:
        words.append("SP")
    if layout.recompute.granularity != "none":
        words.append(f"recompute {recompute_words(layout)}")
    return " ".join(words)


def _show_reasons(plan: Plan, title: str = "why:", sources: bool = False) -> None:
    show()
    show(title)
    for reason in plan.reasons:
        source = f": {reason.source}" if sources and reason.source else ""
        _point(f"{reason.text} [{reason.rule}{source}]")
    if plan.environment:
        show("  needs " + " ".join(f"{k}={v}" for k, v in plan.environment.items()))


def show_compared(a: Plan, b: Plan) -> None:
    """Two layouts side by side."""
    from tui.cli.compare_text import compared_lines

    for line in compared_lines(a, b, (f"number {a.rank}", f"number {b.rank}")):
        _wrapped(line) if line.startswith("same") else show(line)


def show_plan(plan: Plan) -> None:
    """One layout in full: step by cause, memory by stage, reasons, what is not modelled."""
    step, memory = plan.step, plan.memory
    show(layout_words(plan.layout, plan.trainer))
    show(
        f"step    {seconds_words(step.seconds)} "
        f"({seconds_words(step.low)} to {seconds_words(step.high)} in 9 of 10 cases), "
        f"{step.model_tflops:.0f} model TFLOPS per GPU, {step.hardware_tflops:.0f} hardware, "
        f"MFU {percent_words(step.mfu) if step.mfu is not None else '-'}, "
        f"{step.tokens_per_second_per_gpu:,.0f} tokens/s per GPU"
    )
    parts = [(words, getattr(step, name)) for name, words in _STEP_PARTS]
    show("        " + " | ".join(f"{words} {seconds_words(s)}" for words, s in parts if s > 0))
    risk = (
        ""
        if memory.oom_probability is None
        else f", risk of running out {percent_words(memory.oom_probability)}"
    )
    show(
        f"memory  {memory_words(plan)} GiB on the worst stage, allocated {memory.allocated_gib:.1f}, reserved "
        f"{memory.reserved_gib:.1f}, peak in {memory.peak_phase.replace('_', '/')}{risk}"
    )
    names = [words for _, words in _MEMORY_PARTS]
    rows = [[s.stage, *(f"{getattr(s, name):.1f}" for name, _ in _MEMORY_PARTS)] for s in memory.stages]
    show_table(["stage", *names], rows, ",".join(str(i) for i in range(len(names) + 1)))
    if memory.not_modelled:
        _wrapped("not modelled: " + "; ".join(memory.not_modelled))
    _show_reasons(plan, sources=True)
