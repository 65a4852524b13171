"""Owns the console blocks of Composer and llm-foundry: a header with the batch, then one figure a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpt_tune.logs.formats.base import TRAINER, Format, Item, Line, Record, decimal, scaled
from gpt_tune.logs.types import RankMemory, Step

_HEADER = re.compile(r"^(?:\[epoch=(\d{1,9})\])?\[batch=(\d{1,12})/(\d{1,12})\]:\s{0,4}$")
_TRAIN = re.compile(r"^\s{0,16}Train ([\w/ .-]{1,80}): ([-+\w.,]{1,32})\s{0,200}$")
_KEYS = {
    "loss/train/total": ("loss", 0),
    "throughput/device/tokens_per_sec": ("tokens_per_second_per_gpu", 0),
    "throughput/samples_per_sec": ("samples_per_second", 0),
    "throughput/device/flops_per_sec": ("logged_tflops", -12),
    "l2_norm/grad/global": ("grad_norm", 0),
}
_OTHER_LOSSES = ("metrics/train/LanguageCrossEntropy", "LanguageCrossEntropy")

# What libraries say under no name: NCCL's own lines and Python's warnings.
_FOREIGN = re.compile(r"\bNCCL (?:INFO|WARN)\b|Warning: ")
MAX_STRANGERS = 64  # lines of others within one block


class Composer(Format):
    """Reads a block until a line that does not belong to it."""

    name = "llm-foundry"
    triggers = ("[batch=",)

    def __init__(self) -> None:
        self._step: Step | None = None
        self._time: float | None = None
        self._reserved: float | None = None
        self._other_loss: float | None = None
        self._label = ""
        self._strangers = 0

    @property
    def pending(self) -> bool:
        return self._step is not None

    def feed(self, line: Line) -> Iterable[Item]:
        header = _HEADER.match(line.text.strip())
        if header is not None:
            yield from self.finish()
            epoch, batch, total = header.groups()
            offset = (int(epoch) - 1) * int(total) if epoch and int(epoch) > 1 else 0
            self._step = Step(offset + int(batch), total_iterations=None if epoch else int(total))
            self._time = line.prefix.time
            self._label, self._strangers = line.prefix.label, 0
            return
        figure = _TRAIN.match(line.text)
        if self._step is None:
            return
        if figure is not None and line.prefix.label == self._label:
            self._strangers = 0
            self._take(self._step, figure.group(1), figure.group(2))
            return
        # Other processes write in between; what the block's own process says besides ends it.
        self._strangers += 1
        own = line.prefix.label == self._label and not _FOREIGN.search(line.full)
        if (own and bool(line.text.strip())) or self._strangers > MAX_STRANGERS:
            yield from self.finish()

    def _take(self, step: Step, key: str, value: str) -> None:
        if key in _KEYS:
            name, power = _KEYS[key]
            setattr(step, name, scaled(value, power))
        elif key == "throughput/batches_per_sec":
            rate = decimal(value)
            step.step_time_ms = 1000.0 / rate if rate else None
        elif key == "memory/peak_reserved_mem":
            self._reserved = decimal(value)
        elif key.startswith("lr-"):
            step.learning_rate = decimal(value)
        elif key in _OTHER_LOSSES:
            self._other_loss = decimal(value)

    def finish(self) -> Iterator[Item]:
        step, self._step = self._step, None
        other, self._other_loss = self._other_loss, None
        reserved, self._reserved = self._reserved, None
        if step is None:
            return
        if step.loss is None:
            step.loss = other
        if step.logged_tflops is not None:
            step.logged_tflops_kind = "model"
        if reserved is not None:
            yield RankMemory(None, None, reserved, None, reserved)
        yield Record(step, TRAINER, self._time)
