"""Owns what a QLoRA job decides: which choices cannot run, its strategy, and the memory it will take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpt_tune.errors import UserError
from gpt_tune.hardware.catalogue import node_for
from gpt_tune.hardware.parts import Node
from gpt_tune.memory.finetune import FineTune, Strategy, estimate_finetune
from gpt_tune.memory.types import MemoryEstimate
from gpt_tune.models import catalogue
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.schema import Finetune, Profile
from gpt_tune.recipes.base import JobSpec

# Tokens of an example where the profile says nothing: the AWS QLoRA test case.
DEFAULT_LENGTH = 1536
STRATEGIES: tuple[Strategy, ...] = ("ddp", "zero2", "zero3")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A strategy, why, and the memory it takes; None where the GPU's size is not known."""

    strategy: Strategy
    why: str
    memory: MemoryEstimate | None


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
        model = catalogue.get(profile.model.id)
    except UserError as error:
        return [str(error)]
    if model.moe:
        return [
            f"{model.id} has experts, whose weights bitsandbytes does not quantise: set finetune.base_weights to 16bit."
        ]
    return []


def seq_length(profile: Profile) -> int:
    """Tokens an example is cut at."""
    return profile.model.seq_length or DEFAULT_LENGTH


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
    """The strategy asked for, or the first that fits: a whole copy a GPU (fastest), then ZeRO-2, then ZeRO-3."""
    tune, node = spec.profile.finetune, node_of(spec)
    if tune.strategy != "auto":
        return Chosen(tune.strategy, "the profile asks for it", memory(spec, node, tune.strategy))
    if spec.gpus <= 1:
        return Chosen("ddp", "one process has nothing to split", memory(spec, node, "ddp"))
    for strategy in STRATEGIES:
        found = memory(spec, node, strategy)
        if found is None:
            return Chosen("ddp", "the GPU's memory is not known, and it is the fastest", None)
        if found.oom_probability is not None and found.oom_probability < 0.5:
            why = "a whole copy fits each GPU" if strategy == "ddp" else "the first that fits each GPU"
            return Chosen(strategy, why, found)
    return Chosen("zero3", "it needs the least memory", memory(spec, node, "zero3"))


def memory(spec: JobSpec, node: Node | None, strategy: Strategy) -> MemoryEstimate | None:
    """Memory of one GPU; None where the GPU, or a layer that the adapters go on, is not known."""
    tune, model = spec.profile.finetune, spec.model
    if node is None or spec.gpus < 1:
        return None
    job = FineTune(
        method="lora" if tune.base_weights == "16bit" else "qlora",
        strategy=strategy,
        gpus=spec.gpus,
        micro_batch_size=tune.micro_batch_size,
        seq_length=seq_length(spec.profile),
        gradient_checkpointing=tune.gradient_checkpointing,
        optimizer=tune.optimizer,
        lora_rank=tune.lora_rank,
        lora_dropout=tune.lora_dropout,
        lora_targets=tuple(tune.lora_targets),
        double_quantisation=tune.double_quantisation,
    )
    try:
        return estimate_finetune(model, node, job)
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
