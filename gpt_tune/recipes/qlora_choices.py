"""Owns what a QLoRA job decides: which choices cannot run, its strategy, and the memory it will take."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpt_tune.errors import UserError
from gpt_tune.hardware.catalogue import node_for
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.layout import Layout, Recompute
from gpt_tune.memory.finetune import Strategy, estimate_finetune
from gpt_tune.memory.finetune_layouts import job_of
from gpt_tune.memory.types import MemoryEstimate
from gpt_tune.models import catalogue
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.schema import Finetune, Profile
from gpt_tune.recipes import qlora_layout, qlora_model, script
from gpt_tune.recipes.base import JobSpec
from gpt_tune.recipes.qlora_layout import seq_length

STRATEGIES: tuple[Strategy, ...] = ("ddp", "zero2", "zero3")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a job trains with, why this strategy, and the memory it takes; None where the GPU's size is not known."""

    strategy: Strategy
    why: str
    memory: MemoryEstimate | None
    micro_batch_size: int
    gradient_accumulation_steps: int
    gradient_checkpointing: bool


def problems(profile: Profile) -> list[str]:
    """Sentences about choices that cannot be trained with."""
    tune = profile.finetune
    found = [
        f"finetune.{name} is empty: {what}."
        for name, value, what in (
            ("weights", tune.weights, "give a folder of Hugging Face weights or a repository's name"),
            ("data", tune.data, "give a JSON, JSONL or parquet file, or a data set's name"),
        )
        if not value.strip()
    ]
    found += [f"{name} holds a line break." for name, text in _paths(profile) if "\n" in text or "\r" in text]
    found += _number_problems(tune)
    if tune.base_weights != "16bit" and not found:
        found += _expert_problems(profile)
    return found


def _paths(profile: Profile) -> list[tuple[str, str]]:
    return [
        ("finetune.weights", profile.finetune.weights),
        ("finetune.data", profile.finetune.data),
        ("training.checkpoint_dir", profile.training.checkpoint_dir),
    ]


def _number_problems(tune: Finetune) -> list[str]:
    least = {
        "lora_rank": 1, "lora_alpha": 1, "micro_batch_size": 1, "gradient_accumulation_steps": 1, "steps": 1,
        "max_samples": 1, "log_interval": 1, "checkpoint_interval": 1, "checkpoints_kept": 1, "eval_interval": 1,
        "patience": 0, "weight_decay": 0, "gradient_clipping": 0, "seed": 0,
    }  # fmt: skip
    found = []
    for name, smallest in least.items():
        value = getattr(tune, name)
        if value is not None and not (math.isfinite(value) and value >= smallest):
            found.append(f"finetune.{name} is {value:g}; it must be at least {smallest}.")
    for name in ("epochs", "learning_rate"):
        value = getattr(tune, name)
        if not (math.isfinite(value) and value > 0):
            found.append(f"finetune.{name} is {value:g}; it must be above 0.")
    for name in ("lora_dropout", "validation_share", "warmup_share"):
        value = getattr(tune, name)
        if not 0 <= value < 1:
            found.append(f"finetune.{name} is {value:g}; it is a share, from 0 to below 1.")
    if not any(t.strip() for t in tune.lora_targets):
        found.append("finetune.lora_targets is empty: name layers such as q_proj and v_proj.")
    return found


def _expert_problems(profile: Profile) -> list[str]:
    try:
        model = catalogue.get(qlora_model.settled(profile).model.id)
    except UserError as error:
        return [str(error)]
    if model.moe:
        return [
            f"{model.id} has experts, whose weights bitsandbytes does not quantise: set finetune.base_weights to 16bit."
        ]
    return []


def node_of(spec: JobSpec) -> Node | None:
    """The node type that the job runs on, if anything names it."""
    resources = spec.profile.resources
    for name in (resources.node, spec.site.node, resources.gpu):
        if name:
            try:
                return node_for(name, spec.gpus_per_node if name == resources.gpu else None)
            except UserError:
                continue
    return None


def choose(spec: JobSpec) -> Chosen:
    """As planned. Without a plan the strategy asked for, or the first that fits: a whole copy a GPU (fastest), then
    ZeRO-2, then ZeRO-3."""
    tune = spec.profile.finetune
    if spec.plan is not None:
        layout = spec.plan.layout
        why = "the planner's choice" if tune.strategy == "auto" else "the profile asks for it"
        return _chosen(qlora_layout.strategy_of(layout.zero_stage), why, spec.plan.memory, layout)
    node = node_of(spec)
    if tune.strategy != "auto":
        return _unplanned(spec, node, tune.strategy, "the profile asks for it")
    if spec.gpus <= 1:
        return _unplanned(spec, node, "ddp", "one process has nothing to split")
    for strategy in STRATEGIES:
        found = _unplanned(spec, node, strategy, "")
        if found.memory is None:
            return replace(found, why="the GPU's memory is not known, and it is the fastest")
        if found.memory.oom_probability is not None and found.memory.oom_probability < 0.5:
            why = "a whole copy fits each GPU" if strategy == "ddp" else "the first that fits each GPU"
            return replace(found, why=why)
    return _unplanned(spec, node, "zero3", "it needs the least memory")


def _chosen(strategy: Strategy, why: str, memory: MemoryEstimate | None, layout: Layout) -> Chosen:
    return Chosen(
        strategy,
        why,
        memory,
        layout.micro_batch_size,
        layout.gradient_accumulation_steps,
        layout.recompute.granularity != "none",
    )


def _unplanned(spec: JobSpec, node: Node | None, strategy: Strategy, why: str) -> Chosen:
    """The profile's numbers under a strategy, with the defaults of what it leaves open."""
    checkpointing = spec.profile.finetune.gradient_checkpointing
    micro, steps = qlora_layout.counts_of(spec.profile, script.ranks(spec))
    layout = Layout(
        data_parallel=max(1, spec.gpus),
        zero_stage=qlora_layout.ZERO_STAGES[strategy],
        micro_batch_size=micro,
        gradient_accumulation_steps=steps,
        recompute=Recompute("none" if checkpointing is False else "full"),
    )
    return _chosen(strategy, why, _memory(spec, node, layout), layout)


def _memory(spec: JobSpec, node: Node | None, layout: Layout) -> MemoryEstimate | None:
    """Memory of one GPU; None where the GPU, or a layer that the adapters go on, is not known."""
    if node is None or spec.gpus < 1:
        return None
    profile = spec.profile
    tuning = qlora_layout.tuning_of(profile.finetune)
    job = job_of(layout, qlora_layout.trainer_of(profile), seq_length(profile), tuning)
    try:
        return estimate_finetune(spec.model, node, job)
    except UserError:
        return None


def size_warnings(weights: str, model: ModelShape) -> list[str]:
    """A sentence when the shape that memory is estimated with looks like another model than the weights."""
    digits = "".join(c for c in weights.lower() if c.isalnum())
    shape = "".join(c for c in model.id.lower() if c.isalnum())
    if shape in digits or weights.startswith("/"):
        return []
    return [
        f"model.id is {model.id} and finetune.weights {weights}: "
        "memory is estimated for the first, the second is trained."
    ]
