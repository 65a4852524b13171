"""Owns what the choices of a draft imply, in words: nodes, memory, step time, cost, and how sure that is. Cheap."""

from __future__ import annotations

from dataclasses import replace

from gpt_tune.errors import UserError
from gpt_tune.layouts.layout import Layout
from gpt_tune.memory.types import MemoryEstimate
from gpt_tune.models import parameters
from gpt_tune.models.shape import ModelShape
from gpt_tune.planner.types import Plan, PlanRequest
from gpt_tune.recipes import qlora_model
from gpt_tune.words import count_words, percent_words, seconds_words
from gpt_tune.workflows import defaults
from gpt_tune.workflows.draft import Draft, Summary
from gpt_tune.workflows.forecast import Forecast
from gpt_tune.workflows.request import iterations_of, needs_plan, plan_request, tunes
from gpt_tune.workflows.sure import TUNING_SURE, short_words

# Of fine-tuning plans, which have no calibration (gpt_tune.planner.finetune_time).


def summary(draft: Draft, forecast: Forecast | None = None) -> Summary:
    """The live summary beside every step; it never searches.

    forecast: the best layout for the choices so far, which stands in while none is chosen.
    """
    parts = [("job", draft.recipe), ("where", _where(draft))]
    machine = defaults.machine(draft)
    if machine:
        unit = "GPU" if machine.node else "process"
        plural = "" if machine.gpus == 1 else ("s" if unit == "GPU" else "es")
        nodes = f"{machine.nodes} node{'s' if machine.nodes > 1 else ''}"
        kind = f" of {machine.node.id}" if machine.node else ""
        size = f"{machine.gpus} {unit}{plural} on {nodes}{kind}"
        parts.append(("size", size if machine.node or not draft.plan_only else "no GPU type chosen yet"))
    if draft.recipe == "smoke":
        parts.append(("trains", _smoke_words(draft)))
    elif draft.recipe == "acs" and draft.profile.acs.work == "ljperf":
        parts.append(("runs", f"ljperf {draft.profile.acs.benchmark}"))
    elif draft.recipe != "custom":
        parts += _training_parts(draft)
    if qlora_model.awaited(draft.profile):
        return Summary(tuple(parts))
    if needs_plan(draft.profile, draft.site, None if draft.plan_only else draft.cluster):
        parts += _plan_parts(draft, forecast)
    return Summary(tuple(parts))


def gpu_hours(draft: Draft) -> float | None:
    """GPU-hours of the whole run by the chosen plan, or None without one."""
    steps = None if draft.plan is None else iterations_of(draft.profile, _request(draft))
    if draft.plan is None or steps is None:
        return None
    return steps * draft.plan.step.seconds * draft.plan.layout.gpus / 3600


def _where(draft: Draft) -> str:
    if draft.plan_only:
        return "planning only"
    machine = defaults.machine(draft)
    partition = f", partition {machine.partition.name}" if machine and machine.partition else ""
    return (draft.profile.cluster or "no cluster") + (partition if draft.cluster else "")


def _smoke_words(draft: Draft) -> str:
    smoke = draft.profile.smoke
    length = f"{smoke.steps} steps" if smoke.steps else f"about {seconds_words(smoke.seconds)}"
    return f"a tiny GPT ({smoke.layers} x {smoke.hidden}) for {length}"


def _training_parts(draft: Draft) -> list[tuple[str, str]]:
    model = defaults.model(draft)
    if model is None:
        return [("model", f"{draft.profile.model.id} (unknown)")]
    if tunes(draft.profile):
        return _tuning_parts(draft, model)
    length = draft.profile.model.seq_length or model.seq_length
    batch = (
        draft.profile.training.global_batch_size
        or defaults.default_of(draft, "training.global_batch_size")[0]
    )
    parts = [("model", f"{model.id}, {count_words(parameters.total(model))} parameters")]
    if batch:
        parts.append(("batch", f"{count_words(batch * length)} tokens ({batch} x {length})"))
        steps = iterations_of(draft.profile, _request(draft)) or 0
        parts.append(("length", f"{steps:,} steps, {count_words(steps * batch * length)} tokens"))
    return parts


def _tuning_parts(draft: Draft, model: ModelShape) -> list[tuple[str, str]]:
    """What is trained on what, and where the weights' shape is known from."""
    tune, known = draft.profile.finetune, qlora_model.known(draft.profile)
    if qlora_model.awaited(draft.profile):
        return [("model", "the weights': they are not given yet")]
    if known is None:
        return [("model", "its shape is not known, so nothing is planned: name it on the model step")]
    why = f" ({known.why})" if known.why else " parameters"
    kind = "LoRA" if tune.base_weights == "16bit" else f"QLoRA ({tune.base_weights})"
    parts = [
        ("model", f"{model.id}, {count_words(parameters.total(model))}{why}"),
        ("trains", f"{kind}, rank {tune.lora_rank}"),
    ]
    batch, length = defaults.default_of(draft, "training.global_batch_size")[0], defaults.seq_length(draft)
    batch = draft.profile.training.global_batch_size or batch
    if batch and length:
        parts.append(("batch", f"{batch} x {length:,} tokens at most"))
    steps = iterations_of(draft.profile, _request(draft))
    epochs = f"{tune.epochs:g} epoch{'' if tune.epochs == 1 else 's'} of the data"
    words = epochs if steps is None else f"{steps:,} steps"
    at_most = "at most " if steps is not None and tune.steps is None else ""
    return [*parts, ("length", at_most + words)]


def _plan_parts(draft: Draft, forecast: Forecast | None) -> list[tuple[str, str]]:
    request = _request(draft)
    if draft.plan is not None:
        costs_of = _tuning_costs if tunes(draft.profile) else _cost_parts
        return costs_of(draft, draft.plan, request)
    if request is None:
        return []
    if forecast is None or forecast.request != replace(request, top=forecast.request.top):
        return [("layout", "looking for the best one…")]
    if forecast.plan is None:
        return [("layout", f"none fits: {forecast.trouble}" if forecast.trouble else "none fits")]
    if tunes(draft.profile):
        return [*_tuning_costs(draft, forecast.plan, request), ("best", tuning_letters(forecast.plan.layout))]
    best = ("layout", f"best so far: {layout_letters(forecast.plan.layout)}")
    costs = _cost_parts(draft, forecast.plan, request)
    return [*costs[:-1], best, *costs[-1:]]


def _cost_parts(draft: Draft, plan: Plan, request: PlanRequest | None) -> list[tuple[str, str]]:
    """What a layout implies: step, memory, time, cost, pace, and how sure that is; what matters most first."""
    step, memory = plan.step, plan.memory
    seconds = (iterations_of(draft.profile, request) or 0) * step.seconds
    hours = seconds * plan.layout.gpus / 3600
    ends = f"{seconds_words(step.low)} to {seconds_words(step.high)}"
    parts = [
        ("step", f"{seconds_words(step.seconds)}, {ends} in 9 of 10 cases"),
        ("memory", _memory_words(memory)),
        ("takes", f"{seconds_words(seconds)}, {hours:,.1f} GPU-hours"),
    ]
    if request is not None and step.seconds > 0:
        day = request.global_batch_size * request.seq_length * 86_400 / step.seconds
        parts.append(("sure", short_words(request)))
        parts.append(("pace", f"{count_words(day)} tokens a day"))
    speed = f"{step.model_tflops:.0f} model TFLOPS per GPU"
    return [*parts, ("speed", speed + (f", MFU {percent_words(step.mfu)}" if step.mfu else ""))]


def layout_letters(layout: Layout) -> str:
    """A layout in a few characters: TP 8 PP 2 DP 4 ZeRO-1."""
    return (
        f"TP {layout.tensor_parallel} PP {layout.pipeline_parallel} DP {layout.data_parallel} "
        f"ZeRO-{layout.zero_stage}"
    )


def _tuning_costs(draft: Draft, plan: Plan, request: PlanRequest | None) -> list[tuple[str, str]]:
    """The same of a fine-tuning job, in so few words that all stands on a small screen."""
    step, steps = plan.step, iterations_of(draft.profile, request)
    seconds = (steps or 1000) * step.seconds
    hours = f"{seconds * plan.layout.gpus / 3600:,.1f} GPU-hours"
    takes = f"{hours} per 1,000 steps" if steps is None else f"{seconds_words(seconds)}, {hours}"
    return [
        ("step", f"{seconds_words(step.seconds)} ({seconds_words(step.low)} to {seconds_words(step.high)})"),
        ("memory", _memory_words(plan.memory)),
        ("takes", takes),
        ("sure", TUNING_SURE),
    ]


def _memory_words(memory: MemoryEstimate) -> str:
    limit = f" of {memory.limit_gib:.0f}" if memory.limit_gib else ""
    return f"{memory.device_gib:.0f}{limit} GiB per GPU" + _risk(memory.oom_probability)


def tuning_letters(layout: Layout) -> str:
    """What a plan decides of a fine-tuning job: ZeRO-2, 2 x 4, checkpointing (micro batch x accumulation)."""
    name = "DDP" if layout.zero_stage == 0 else f"ZeRO-{layout.zero_stage}"
    kept = "no checkpointing" if layout.recompute.granularity == "none" else "checkpointing"
    return f"{name}, {layout.micro_batch_size} x {layout.gradient_accumulation_steps}, {kept}"


def _risk(probability: float | None) -> str:
    """Said only where there is one to speak of."""
    return (
        ""
        if probability is None or probability < 0.01
        else f", {percent_words(probability)} risk of running out"
    )


def _request(draft: Draft) -> PlanRequest | None:
    try:
        return plan_request(draft.profile, draft.site, None if draft.plan_only else draft.cluster)
    except UserError:
        return None
