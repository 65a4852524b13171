"""Owns the default of every question that depends on the draft, each with the words for where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpt_tune.errors import UserError
from gpt_tune.models import catalogue as models
from gpt_tune.models.shape import ModelShape
from gpt_tune.planner import default_global_batch
from gpt_tune.profiles.build import value_at
from gpt_tune.profiles.schema import Profile, Site
from gpt_tune.recipes import qlora_layout, qlora_model
from gpt_tune.workflows.draft import PLAN_ONLY, Draft
from gpt_tune.workflows.machine import Machine, has_gpus, machine_of
from gpt_tune.workflows.request import DEFAULT_ITERATIONS, needs_plan, tunes
from gpt_tune.workflows.trainer_here import trainer_path

Default = tuple[Any, str]  # the value and the words for its source


def default_of(draft: Draft, key: str) -> Default:
    """What a question is answered with when the user says nothing."""
    if key in _BY_KEY:
        return _BY_KEY[key](draft)
    if key.startswith("site."):
        return value_at(Site(), key[5:]), "default"
    return value_at(Profile(), key), "default"


def machine(draft: Draft) -> Machine | None:
    """The machine of a draft, or None while something about it is wrong."""
    try:
        return machine_of(draft.profile, draft.site, None if draft.plan_only else draft.cluster)
    except UserError:
        return None


def model(draft: Draft) -> ModelShape | None:
    """The model of a draft, or None while its name is wrong."""
    try:
        return models.get(qlora_model.settled(draft.profile).model.id)
    except UserError:
        return None


def seq_length(draft: Draft) -> int | None:
    shape = model(draft)
    own = qlora_layout.DEFAULT_LENGTH if tunes(draft.profile) else shape.seq_length if shape else None
    return draft.profile.model.seq_length or own


def _cluster(draft: Draft) -> Default:
    if draft.plan_only:
        return PLAN_ONLY, "default"
    return (draft.clusters[0] if draft.clusters else PLAN_ONLY), "found here"


def _partition(draft: Draft) -> Default:
    found = machine(draft)
    name = found.partition.name if found and found.partition else draft.site.partition
    return name, "site" if draft.site.partition == name else "the cluster"


def _gpu(draft: Draft) -> Default:
    """A profile may name its node type instead of the GPU."""
    node = draft.profile.resources.node
    return node, draft.origins.get("resources.node") or (f"profile {draft.base}" if node else "default")


def _gpus(draft: Draft) -> Default:
    found = machine(draft)
    return (found.node_gpus, "one node") if found else (None, "")


def _gpus_per_node(draft: Draft) -> Default:
    found = machine(draft)
    return (found.node_gpus if found else None), "the cluster" if draft.cluster else "the node type"


def _seq_length(draft: Draft) -> Default:
    if tunes(draft.profile):
        return qlora_layout.DEFAULT_LENGTH, "usual for examples"
    shape = model(draft)
    return (shape.seq_length if shape else None), "the model"


def _global_batch(draft: Draft) -> Default:
    found, length = machine(draft), seq_length(draft)
    if found is None or length is None:
        return None, ""
    if tunes(draft.profile):
        return _examples(draft, found)
    return default_global_batch(found.gpus, length), "about 0.5 M tokens a step"


def _examples(draft: Draft, machine: Machine) -> Default:
    """Micro batch x accumulation on each rank, where the batch is not asked for itself."""
    profile = draft.profile
    tune, each = profile.finetune, "GPU" if has_gpus(draft.cluster, machine.partition) else "process"
    free = replace(profile, training=replace(profile.training, global_batch_size=None))
    source = f"{qlora_layout.DEFAULT_ACCUMULATION} for each {each}"
    if (tune.micro_batch_size, tune.gradient_accumulation_steps) != (None, None):
        source = "micro batch x accumulation"
    return qlora_layout.batch_of(free, machine.gpus), source


def _model(draft: Draft) -> Default:
    """Fine-tuning trains the model that the weights are of."""
    known = qlora_model.known(draft.profile) if tunes(draft.profile) else None
    return (known.id, known.why) if known is not None and known.why else (Profile().model.id, "default")


def _planned(otherwise: Any) -> Callable[[Draft], Default]:
    """What the planner chooses where it has a say; the trainer's usual value where not."""

    def found(draft: Draft) -> Default:
        where = (draft.profile, draft.site, None if draft.plan_only else draft.cluster)
        return (None, "the planner chooses") if needs_plan(*where) else (otherwise, "default")

    return found


def _iterations(draft: Draft) -> Default:
    if draft.profile.training.tokens is not None:
        return None, "tokens are given"
    return DEFAULT_ITERATIONS, "a short run"


def _trainer_path(draft: Draft) -> Default:
    found = trainer_path(draft.recipe, draft.site)
    return found, "found here" if found else "default"


_BY_KEY: dict[str, Callable[[Draft], Default]] = {
    "cluster": _cluster,
    "resources.partition": _partition,
    "resources.gpu": _gpu,
    "resources.gpus": _gpus,
    "resources.gpus_per_node": _gpus_per_node,
    "model.seq_length": _seq_length,
    "training.global_batch_size": _global_batch,
    "training.iterations": _iterations,
    "trainer.path": _trainer_path,
    "model.id": _model,
    "finetune.micro_batch_size": _planned(qlora_layout.DEFAULT_MICRO_BATCH),
    "finetune.gradient_accumulation_steps": _planned(qlora_layout.DEFAULT_ACCUMULATION),
    "finetune.gradient_checkpointing": _planned(True),
}
