"""Owns which choices of an acs job its image's rules forbid, before anything is rendered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpt_tune import rendering
from gpt_tune.errors import UserError, shown
from gpt_tune.profiles.acs import Acs
from gpt_tune.profiles.schema import Profile
from gpt_tune.recipes import acs_manifest, acs_rules

_LARGEST_CONFIG = 1_000_000


def image_problems(acs: Acs) -> list[str]:
    """Sentences about the image, its CUDA and the driver under it."""
    found = []
    try:
        acs_rules.image_of(acs)
        rendering.single_line(acs.image, "acs.image")
        if any(c.isspace() for c in acs.image) and not acs.image.startswith("/"):
            found.append(f"acs.image is {shown(acs.image)}; an image's address has no spaces.")
        cuda = acs_rules.cuda_of(acs)
    except UserError as error:
        return [*found, str(error)]
    if acs.driver and (sentence := acs_rules.driver_problem(acs.driver, cuda)):
        found.append(sentence)
    return found


def work_problems(profile: Profile) -> list[str]:
    """Sentences about what runs: the benchmark, or the script with its packages and its DeepSpeed configuration."""
    acs = profile.acs
    found = [s for s in map(acs_rules.package_problem, acs.packages) if s]
    if acs.work == "ljperf":
        if not acs.benchmark.strip():
            found.append(
                "acs.benchmark is empty: give the model of the benchmark, such as deepspeed/llama3-8b."
            )
        if acs.compile:
            found.append("acs.compile needs acs.work=script: ljperf documents no switch for it.")
        if acs.script:
            found.append("acs.script is set, but acs.work is ljperf: set acs.work=script to run it.")
        return found
    if not acs.script.startswith("/"):
        given = f"is {shown(acs.script)}" if acs.script else "is empty"
        found.append(f"acs.script {given}; give the script's absolute path, as the container sees it.")
    if profile.training.load:
        found.append(
            "training.load is set; an acs script goes on from the newest checkpoint in SAVE_DIR by itself."
        )
    if sentence := acs_rules.install_problem(acs.arguments):
        found.append(sentence)
    try:
        found += _config_problems(acs.deepspeed_config)
    except UserError as error:
        found.append(str(error))
    return found


def _config_problems(path: str) -> list[str]:
    sentence = acs_rules.prefetch_problem(read_config(path)) if path else ""
    return [f"{path}: {sentence}"] if sentence else []


def read_config(path: str) -> Mapping[str, Any]:
    """A DeepSpeed configuration of this machine. UserError when it is none."""
    file = Path(path).expanduser()
    try:
        if file.stat().st_size > _LARGEST_CONFIG:
            raise UserError(f"{shown(path)} has more than 1 MB.", "That is no DeepSpeed configuration.")
        data = json.loads(file.read_bytes())
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"acs.deepspeed_config {shown(path)} cannot be read: {reason}.",
            "Give a JSON file of this machine.",
        ) from error
    if not isinstance(data, dict):
        raise UserError(f"{shown(path)} holds no DeepSpeed configuration.", "It must be a JSON object.")
    return data


def pod_problems(profile: Profile) -> list[str]:
    """Sentences about the size of a node, its interface and the names in the manifest."""
    per_node = profile.resources.gpus_per_node
    found = acs_manifest.problems(profile.acs)
    if per_node is not None:
        try:
            sentence = acs_rules.interface_problem(profile.site.environment.variables, per_node)
        except UserError as error:
            return [*found, str(error)]
        found += [sentence] if sentence else []
    return found
