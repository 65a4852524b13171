"""Plans for tests, made by the planner itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpt_tune import planner
from gpt_tune.hardware.sizes import nodes_of
from gpt_tune.models import catalogue
from gpt_tune.planner.types import Plan
from gpt_tune.profiles.schema import ModelChoice, Profile, Resources, Site, Training
from gpt_tune.recipes.base import JobSpec
from tests.recipes.specs import job


def plan_for(
    model: str,
    gpus: int,
    gpu: str = "h200",
    fix: Sequence[str] = (),
    trainer: str = "megatron-deepspeed",
    **values: Any,
) -> Plan:
    """The planner's first choice, or the whole layout that `fix` gives. AssertionError when there is none."""
    request = planner.build_request(model, gpus, gpu=gpu, fix=tuple(fix), trainer=trainer, top=1, **values)
    found = planner.search(request).plans
    assert found, f"no plan for {model} on {gpus} {gpu} with {fix}"
    return found[0]


def training_job(
    run_dir: Path | str,
    plan: Plan,
    model: str = "gpt-1.3b",
    gpu: str = "h200",
    seq_length: int | None = None,
    training: Training | None = None,
    profile: dict[str, Any] | None = None,
    **changes: Any,
) -> JobSpec:
    """A megatron-deepspeed job for a plan, on Slurm."""
    gpus = plan.layout.gpus
    per_node = min(gpus, 8)
    full = Profile(
        **{
            "name": "run",
            "recipe": "megatron-deepspeed",
            "model": ModelChoice(id=model, seq_length=seq_length),
            "resources": Resources(gpus=gpus, gpus_per_node=per_node, gpu=gpu),
            "training": training or Training(),
            **(profile or {}),
        }
    )
    values: dict[str, Any] = {
        "scheduler": "slurm",
        "model": catalogue.get(model),
        "gpus": gpus,
        "gpus_per_node": per_node,
        "nodes": nodes_of(gpus, per_node),
        "plan": plan,
        "site": Site(run_root=str(run_dir), partition="dev", time_limit="1:00:00"),
    }
    return job(run_dir, full, **{**values, **changes})
