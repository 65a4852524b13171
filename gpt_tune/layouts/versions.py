"""Owns comparing version strings of trainers."""

from __future__ import annotations

import re

from gpt_tune.errors import UserError
from gpt_tune.layouts.layout import Trainer

Version = tuple[int, ...]


def parse(text: str) -> Version:
    """ "0.16.4" or "v0.19.6+cu12" as (0, 16, 4); UserError when it does not start with numbers."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    if match is None:
        raise UserError(f"{text!r} is not a version.", "Write for example 0.16.4.")
    return tuple(int(part) for part in match.group(1).split("."))


def deepspeed_at_least(trainer: Trainer, *minimum: int) -> bool:
    """Whether the trainer's DeepSpeed is this version or newer; an unstated version counts as the newest."""
    return trainer.deepspeed is None or parse(trainer.deepspeed) >= minimum
