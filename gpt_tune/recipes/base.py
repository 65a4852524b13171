"""Owns the contract between a recipe and the rest: a resolved job in, files and a command out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpt_tune.models.shape import ModelShape
from gpt_tune.planner.types import Plan
from gpt_tune.profiles.schema import Profile, Site


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job with nothing left to decide.

    run_dir: absolute path on the cluster's shared file system. scheduler: "slurm" | "local".
    plan: None for jobs without a parallel layout (smoke, custom).
    gpu_type: the scheduler's own word for the GPU, where a partition has several; "" asks for any.
    """

    run_id: str
    token: str
    run_dir: str
    scheduler: str
    profile: Profile
    site: Site
    model: ModelShape
    gpus: int
    gpus_per_node: int
    nodes: int
    plan: Plan | None = None
    gpu_type: str = ""

    @property
    def tasks_per_node(self) -> int:
        return max(1, self.gpus_per_node)


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """One file of the run folder; path is relative to it."""

    path: str
    content: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the run is expected to do, kept with it and drawn beside what it does.

    low/high bound the step time at 90 %. flops_per_step counts model FLOPs (no recompute) over all GPUs.
    """

    step_seconds: float | None = None
    step_low: float | None = None
    step_high: float | None = None
    model_tflops: float | None = None
    memory_gib: float | None = None
    memory_limit_gib: float | None = None
    model_flops_per_step: float | None = None
    tokens_per_step: int | None = None
    total_steps: int | None = None
    peak_tflops: float | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Rendered:
    """Every file of a run. log_paths: absolute, with the scheduler's own patterns (%j) still in them."""

    script: str  # relative path of the job script
    files: tuple[RenderedFile, ...]
    log_paths: tuple[str, ...]
    prediction: Prediction
    summary: Mapping[str, Any] = field(default_factory=dict)


class Recipe(Protocol):
    """One kind of job. `name` is what a profile's `recipe` says.

    planned: whether it takes a Plan. A recipe with `plan_optional = True` also runs without one; one with a
    `trainer` is searched under that name and not its own.
    """

    name: str
    title: str  # one line for the wizard
    planned: bool

    def problems(self, profile: Profile) -> list[str]:
        """Sentences about choices this recipe cannot run; empty when all is well."""
        ...

    def render(self, spec: JobSpec) -> Rendered: ...
