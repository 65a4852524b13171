"""Owns a format the user taught by example: `step {iteration} loss {loss} took {step_time_s}s`.

Names in braces are figures; everything else stands as it is, with any number of blanks where there are blanks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gpt_tune.errors import UserError, unknown_name
from gpt_tune.logs.formats.base import TRAINER, Format, Item, Line, Record, decimal, scaled, whole
from gpt_tune.logs.types import Step

_NAME = re.compile(r"\{(\w{1,40})\}")
_NUMBER = r"([-+]?[\d.,]{1,32}(?:[eE][-+]?\d{1,4})?|nan|NaN|NAN|inf|INF)"
# name in braces -> (field, power of ten to its unit)
FIGURES = {
    "iteration": ("iteration", 0),
    "total_iterations": ("total_iterations", 0),
    "step_time_ms": ("step_time_ms", 0),
    "step_time_s": ("step_time_ms", 3),
    "loss": ("loss", 0),
    "learning_rate": ("learning_rate", 0),
    "grad_norm": ("grad_norm", 0),
    "loss_scale": ("loss_scale", 0),
    "tokens_per_second_per_gpu": ("tokens_per_second_per_gpu", 0),
    "samples_per_second": ("samples_per_second", 0),
    "consumed_samples": ("consumed_samples", 0),
    "global_batch_size": ("global_batch_size", 0),
    "any": ("", 0),
}
_COUNTS = frozenset({"iteration", "total_iterations", "consumed_samples", "global_batch_size"})


class Taught(Format):
    """Lines of one taught shape."""

    name = "custom"

    def __init__(self, pattern: re.Pattern[str], names: list[str], trigger: str) -> None:
        self._pattern = pattern
        self._names = names
        self.triggers = (trigger,)

    def feed(self, line: Line) -> Iterable[Item]:
        match = self._pattern.search(line.full)
        if match is None:
            return
        step = Step(-1)
        for name, text in zip(self._names, match.groups()):
            field, power = FIGURES[name]
            if name in _COUNTS:
                setattr(step, field, whole(text.replace(",", "")))
            elif field:
                setattr(step, field, scaled(text, power) if power else decimal(text))
        if step.iteration is not None and step.iteration >= 0:
            yield Record(step, TRAINER, line.prefix.time)


def taught(template: str) -> Callable[[], Format]:
    """A format from a template. Raises UserError for one without {iteration}, an unknown name, or no text at all."""
    names = _NAME.findall(template)
    for name in names:
        if name not in FIGURES:
            raise unknown_name("figure", name, FIGURES, f"the log format {template!r}")
    if "iteration" not in names:
        raise UserError(
            f"The log format {template!r} lacks {{iteration}}.",
            "Write for example: step {iteration} loss {loss}",
        )
    texts = _NAME.split(template)[::2]
    if any(not text for text in texts[1:-1]):
        raise UserError(
            f"The log format {template!r} has two figures with nothing between them.",
            "Keep the text that stands between them in the line.",
        )
    trigger = max((word for text in texts for word in text.split()), key=len, default="")
    if len(trigger) < 2:
        raise UserError(
            f"The log format {template!r} has no word by which its lines are known.",
            "Keep a word of the line, such as step or loss.",
        )
    parts = [r"\s{1,16}".join(map(re.escape, text.split())) for text in texts]
    glue = [(_blank(text[:1]), _blank(text[-1:])) for text in texts]
    pieces: list[str] = []
    for index, (part, (before, after)) in enumerate(zip(parts, glue)):
        pieces.append(before * (index > 0) + part + after * (index < len(parts) - 1 and bool(part)))
        if index < len(names):
            pieces.append(_NUMBER)
    pattern = re.compile("".join(pieces))
    return lambda: Taught(pattern, names, trigger)


def _blank(character: str) -> str:
    return r"\s{0,16}" if character.isspace() else ""


def more_formats(log_format: str) -> tuple[Callable[[], Format], ...]:
    """The formats beyond the shipped ones for a profile's `custom.log_format`: none for `auto`."""
    return () if log_format in ("", "auto") else (taught(log_format),)
