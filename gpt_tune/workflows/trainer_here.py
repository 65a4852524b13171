"""Owns finding a checkout of the trainer where people usually put one, so that nobody must type its path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gpt_tune.profiles.schema import Site

# Recipe -> (variable that names its checkout, usual folder name, a file that proves it is one).
_KNOWN = {
    "megatron-deepspeed": ("MEGATRON_PATH", "Megatron-DeepSpeed", "pretrain_gpt.py"),
    "megatron-lm": ("MEGATRON_PATH", "Megatron-LM", "megatron/training/arguments.py"),
    "llama2-finetune": ("MEGATRON_PATH", "Megatron-DeepSpeed", "finetune_llama.py"),
}


def trainer_path(recipe: str, site: Site) -> str:
    """The trainer's checkout: named by its variable, here or in the site, or found where people put it; "" if none."""
    if recipe not in _KNOWN:
        return ""
    variable, folder, proof = _KNOWN[recipe]
    named = os.environ.get(variable, "") or site.environment.variables.get(variable, "")
    if named.startswith("/"):
        return named
    for place in _places(site):
        candidate = place / folder
        if (candidate / proof).is_file():
            return str(candidate)
    return ""


def trainer_variable(recipe: str) -> str:
    """The variable that names the recipe's trainer, or "" for a recipe that brings its own."""
    return _KNOWN[recipe][0] if recipe in _KNOWN else ""


def trainer_folder(recipe: str) -> str:
    """What the folder of the recipe's trainer is usually called, or ""."""
    return _KNOWN[recipe][1] if recipe in _KNOWN else ""


def _places(site: Site) -> Iterator[Path]:
    if site.run_root.startswith("/"):
        yield from (Path(site.run_root), Path(site.run_root).parent)
    for variable in ("SCRATCH", "WORK", "HOME"):
        value = os.environ.get(variable, "")
        if value.startswith("/"):
            yield from (Path(value), Path(value) / "src")
    yield from (Path("/fsx/deepspeed"), Path("/fsx"), Path("/opt"), Path("/workspace"))
