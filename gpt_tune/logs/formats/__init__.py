"""The log formats, one family a file. A new one is one new file and one entry here."""

from __future__ import annotations

from collections.abc import Callable

from gpt_tune.logs.formats.base import Format
from gpt_tune.logs.formats.composer import Composer
from gpt_tune.logs.formats.deepspeed import Engine, Pipeline, Usage
from gpt_tune.logs.formats.huggingface import HuggingFace
from gpt_tune.logs.formats.launch import Launch
from gpt_tune.logs.formats.megatron import Megatron
from gpt_tune.logs.formats.megatron_side import Arguments, Events, Memory
from gpt_tune.logs.formats.nanotron import Nanotron
from gpt_tune.logs.formats.nemo import BridgeStepTime, Lightning, Nemo2
from gpt_tune.logs.formats.rank_timers import RankTimers
from gpt_tune.logs.formats.saves import Saves
from gpt_tune.logs.formats.small import AwsFsdp, Fairseq, LitGpt, MaxText, NanoGpt, Torchtune
from gpt_tune.logs.formats.torchtitan import Torchtitan

# Order matters only within one line: marks and facts come before the steps they concern.
FORMATS: tuple[Callable[[], Format], ...] = (
    Arguments, Events, Saves, Memory, Usage, RankTimers, Launch,
    Megatron, Pipeline, Engine,
    HuggingFace, Torchtitan, Nemo2, Lightning, BridgeStepTime, Composer, Nanotron,
    Torchtune, NanoGpt, Fairseq, AwsFsdp, MaxText, LitGpt,
)  # fmt: skip


def make_formats() -> list[Format]:
    """A fresh set of readers for one file."""
    return [make() for make in FORMATS]
