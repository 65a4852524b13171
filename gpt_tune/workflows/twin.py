"""Owns the command line that asks what the plan screen shows: the ranked layouts, or one of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from gpt_tune.errors import UserError
from gpt_tune.hardware import catalogue
from gpt_tune.layouts.choices import ACCUMULATION, ENGINE
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.layouts.trainers import features, is_finetune, parse_trainer
from gpt_tune.memory.finetune import Tuning
from gpt_tune.planner.types import PlanRequest
from gpt_tune.workflows.draft import Draft
from gpt_tune.workflows.flat_layout import flat_layout
from gpt_tune.workflows.machine import machine_of


def plan_command(draft: Draft, request: PlanRequest) -> str:
    """`gpt-tune plan` for the same question; "" where no command line can say it, only a saved profile."""
    if _only_a_profile_says(request):
        return ""
    ask = {k: v for k, v in request.fixed.items() if k not in ("precision", "global_batch_size")}
    aim = []
    if request.objective != "step":
        aim += ["--objective", request.objective]
    if request.objective == "headroom":
        aim += ["--within", f"{100 * request.within:g}"]
    return _joined("plan", draft, request, ask, request.precision, aim)


def estimate_command(draft: Draft, request: PlanRequest, layout: Layout) -> str:
    """`gpt-tune estimate` for one layout of a question; "" as for plan_command."""
    if _only_a_profile_says(request):
        return ""
    return _joined("estimate", draft, request, flat_layout(layout.to_json()), layout.precision)


def _only_a_profile_says(request: PlanRequest) -> bool:
    """Adapters and their optimizer are settings of a profile."""
    return is_finetune(request.trainer) and request.tuning != Tuning()


def _joined(
    command: str,
    draft: Draft,
    request: PlanRequest,
    fixed: Mapping[str, Any],
    precision: str,
    more: list[str] | None = None,
) -> str:
    words = ["gpt-tune", command, "--model", draft.profile.model.id, "--gpus", str(request.gpus)]
    words += _where(draft, request)
    words += ["--seq-length", str(request.seq_length), "--global-batch-size", str(request.global_batch_size)]
    words += ["--precision", precision, *_trainer(request.trainer), *(more or [])]
    for key, value in {**_trainer_keys(request.trainer), **fixed}.items():
        said = str(value).lower() if isinstance(value, bool) else str(value)
        words += ["--fix", f"{key}={said}"]
    return shlex.join(words)


def _where(draft: Draft, request: PlanRequest) -> list[str]:
    """The cluster that was looked at, else the node type of the catalogue."""
    resources = draft.profile.resources
    if draft.cluster is not None and not draft.plan_only:
        machine = machine_of(draft.profile, draft.site, draft.cluster)
        where = ["--cluster", draft.cluster.name]
        where += ["--partition", machine.partition.name] if machine.partition else []
        named = resources.node or draft.profile.site.node or resources.gpu
        where += ["--gpu", named] if named else []
        return where + (["--gpus-per-node", str(resources.gpus_per_node)] if resources.gpus_per_node else [])
    node = request.node
    for name in filter(None, (resources.node, resources.gpu, node.id)):
        for per_node in (None, node.gpus_per_node):
            if _names(name, per_node, request):
                return ["--gpu", name, *(["--gpus-per-node", str(per_node)] if per_node else [])]
    return ["--gpu", node.id]


def _names(name: str, per_node: int | None, request: PlanRequest) -> bool:
    try:
        return catalogue.node_for(name, per_node) == request.node
    except UserError:
        return False


def _trainer(trainer: Trainer) -> list[str]:
    """The trainer's name, its version where it is another than the usual, and dropout where it was chosen."""
    usual = parse_trainer(trainer.name)
    suffix = (
        f"@deepspeed-{trainer.deepspeed}"
        if trainer.deepspeed and trainer.deepspeed != usual.deepspeed
        else ""
    )
    if features(trainer).finetune is not None:
        suffix = ""  # no estimate of those depends on the version
    dropout = [] if trainer.dropout is None else ["--dropout", f"{trainer.dropout:g}"]
    return ["--trainer", f"{trainer.name}{suffix}", *dropout]


def _trainer_keys(trainer: Trainer) -> dict[str, Any]:
    usual = parse_trainer(trainer.name)
    keys: dict[str, Any] = {}
    if trainer.gradient_accumulation_dtype is not None:
        keys[ACCUMULATION] = trainer.gradient_accumulation_dtype
    if trainer.pipeline_engine != usual.pipeline_engine:
        keys[ENGINE] = trainer.pipeline_engine
    return keys
