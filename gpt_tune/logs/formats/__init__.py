"""The log formats, one a file. A new one is one new file and one entry here."""

from __future__ import annotations

from collections.abc import Callable

from gpt_tune.logs.formats.base import Format
from gpt_tune.logs.formats.deepspeed import Engine, Pipeline, Usage
from gpt_tune.logs.formats.megatron import Megatron
from gpt_tune.logs.formats.megatron_side import Arguments, Events, Memory

# Order matters only within one line: marks and facts come before the steps they concern.
FORMATS: tuple[Callable[[], Format], ...] = (Arguments, Events, Memory, Usage, Megatron, Pipeline, Engine)


def make_formats() -> list[Format]:
    """A fresh set of readers for one file."""
    return [make() for make in FORMATS]
