"""Owns the recipes: one per kind of job, turning a finished choice into files, environment and command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_tune.errors import unknown_name
from gpt_tune.recipes.acs import AcsRecipe
from gpt_tune.recipes.base import JobSpec, Recipe, Rendered
from gpt_tune.recipes.custom import CustomRecipe
from gpt_tune.recipes.llama2 import Llama2FinetuneRecipe
from gpt_tune.recipes.megatron_deepspeed import MegatronDeepSpeedRecipe
from gpt_tune.recipes.megatron_lm import MegatronLmRecipe
from gpt_tune.recipes.qlora import QloraRecipe
from gpt_tune.recipes.smoke import SmokeRecipe

_ALL: tuple[Recipe, ...] = (
    MegatronDeepSpeedRecipe(),
    MegatronLmRecipe(),
    Llama2FinetuneRecipe(),
    QloraRecipe(),
    AcsRecipe(),
    SmokeRecipe(),
    CustomRecipe(),
)
_RECIPES = {r.name: r for r in _ALL}


def names() -> list[str]:
    """Every recipe's name, in the order people should see them."""
    return list(_RECIPES)


def get(name: str) -> Recipe:
    """The recipe of that name; UserError with the nearest one otherwise."""
    if name not in _RECIPES:
        raise unknown_name("recipe", name, _RECIPES)
    return _RECIPES[name]


def render(spec: JobSpec) -> Rendered:
    """Every file of a job, by its profile's recipe. Nothing is written or submitted."""
    return get(spec.profile.recipe).render(spec)


def planned(name: str) -> bool:
    """Whether jobs of this recipe are planned."""
    return get(name).planned


def plan_optional(name: str) -> bool:
    """Whether jobs of a planned recipe run without a plan too, where nothing tells the GPU or the model."""
    return bool(getattr(get(name), "plan_optional", False))


def trainer(name: str) -> str:
    """The training program that a recipe's jobs run: the name that the planner knows it by."""
    return str(getattr(get(name), "trainer", name))


def required(name: str) -> Mapping[str, Any]:
    """Layout choices that a recipe's jobs need, as if the user had fixed them."""
    found: Mapping[str, Any] = getattr(get(name), "required", {})
    return found
