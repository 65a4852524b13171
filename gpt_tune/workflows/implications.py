"""Owns what the choices of a draft imply, in words: nodes, memory, step time, cost, and how sure that is. Cheap."""

from __future__ import annotations

from gpt_tune.errors import UserError
from gpt_tune.models import parameters
from gpt_tune.planner.types import PlanRequest
from gpt_tune.words import count_words, percent_words, seconds_words
from gpt_tune.workflows import defaults
from gpt_tune.workflows.draft import Draft, Summary
from gpt_tune.workflows.request import iterations_of, needs_plan, plan_request


def summary(draft: Draft) -> Summary:
    """The live summary beside every step; it never searches."""
    parts = [("job", draft.recipe), ("where", _where(draft))]
    machine = defaults.machine(draft)
    if machine:
        unit = "GPU" if machine.node else "process"
        plural = "" if machine.gpus == 1 else ("s" if unit == "GPU" else "es")
        nodes = f"{machine.nodes} node{'s' if machine.nodes > 1 else ''}"
        kind = f" of {machine.node.id}" if machine.node else ""
        parts.append(("size", f"{machine.gpus} {unit}{plural} on {nodes}{kind}"))
    if draft.recipe == "smoke":
        parts.append(("trains", _smoke_words(draft)))
    elif draft.recipe != "custom":
        parts += _training_parts(draft)
    if needs_plan(draft.recipe):
        parts += _plan_parts(draft)
    return Summary(tuple(parts))


def gpu_hours(draft: Draft) -> float | None:
    """GPU-hours of the whole run by the chosen plan, or None without one."""
    if draft.plan is None:
        return None
    steps = iterations_of(draft.profile, _request(draft))
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
    length = draft.profile.model.seq_length or model.seq_length
    batch = (
        draft.profile.training.global_batch_size
        or defaults.default_of(draft, "training.global_batch_size")[0]
    )
    parts = [("model", f"{model.id}, {count_words(parameters.total(model))} parameters")]
    if batch:
        parts.append(("batch", f"{count_words(batch * length)} tokens ({batch} x {length})"))
        steps = iterations_of(draft.profile, _request(draft))
        parts.append(("length", f"{steps:,} steps, {count_words(steps * batch * length)} tokens"))
    return parts


def _plan_parts(draft: Draft) -> list[tuple[str, str]]:
    plan = draft.plan
    if plan is None:
        return [("plan", "not chosen yet")]
    step, memory = plan.step, plan.memory
    steps = iterations_of(draft.profile, _request(draft))
    limit = f" of {memory.limit_gib:.0f}" if memory.limit_gib else ""
    sure = f"{seconds_words(step.low)} to {seconds_words(step.high)} in 9 of 10 cases"
    hours = gpu_hours(draft) or 0.0
    parts = [
        ("step", f"{seconds_words(step.seconds)} ({sure})"),
        (
            "speed",
            f"{step.model_tflops:.0f} model TFLOPS per GPU"
            + (f", MFU {percent_words(step.mfu)}" if step.mfu else ""),
        ),
        ("memory", f"{memory.device_gib:.0f}{limit} GiB per GPU" + _risk(memory.oom_probability)),
        ("takes", f"{seconds_words(steps * step.seconds)}, {hours:,.1f} GPU-hours"),
    ]
    return parts


def _risk(probability: float | None) -> str:
    return "" if probability is None else f", risk of running out {percent_words(probability)}"


def _request(draft: Draft) -> PlanRequest | None:
    try:
        return plan_request(draft.profile, draft.site, None if draft.plan_only else draft.cluster)
    except UserError:
        return None
