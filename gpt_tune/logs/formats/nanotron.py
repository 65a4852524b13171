"""Owns nanotron's metric line, whose figures are shortened to three digits (`11.6K` ms, `85.8G` tokens)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpt_tune.logs.formats.base import TRAINER, Format, Item, Line, Record, human, whole
from gpt_tune.logs.types import Step

_ITERATION = re.compile(r"iteration: (\d{1,12}) / (\d{1,12}) \|")
_KEYS = {
    "elapsed_time_per_iteration_ms": "step_time_ms",
    "time_per_iteration_ms": "step_time_ms",
    "tokens_per_sec_per_gpu": "tokens_per_second_per_gpu",
    "lm_loss": "loss",
    "lr": "learning_rate",
    "model_tflops_per_gpu": "logged_tflops",
    "grad_norm": "grad_norm",
}


class Nanotron(Format):
    """A fragment without `iteration:` is dropped."""

    name = "nanotron"
    triggers = ("time_per_iteration_ms",)

    def feed(self, line: Line) -> Iterable[Item]:
        match = _ITERATION.search(line.full)
        if match is None:
            return
        step = Step(int(match.group(1)), total_iterations=int(match.group(2)))
        for part in line.full[match.end() :].split("|"):
            key, _, value = part.strip().partition(": ")
            value = value.strip()
            if key in _KEYS:
                setattr(step, _KEYS[key], human(value))
            elif key == "global_batch_size":
                # Newer builds print it in tokens, with a suffix.
                step.global_batch_size = whole(value)
        if step.logged_tflops is not None:
            step.logged_tflops_kind = "model"
        yield Record(step, TRAINER, line.prefix.time)
