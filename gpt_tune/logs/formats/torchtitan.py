"""Owns torchtitan's step line in all its periods (wps or tps, with and without tflops and grad_norm)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpt_tune.logs.formats.base import TRAINER, Fact, Format, Item, Line, Mark, Record, grouped
from gpt_tune.logs.types import RankMemory, Step

_STEP = re.compile(r"(validate )?\bstep:\s{0,8}(\d{1,12})\s{1,4}(?=loss:)")
_FIELD = re.compile(r"\b(loss|grad_norm|memory|wps|tps|tflops|mfu):\s{0,12}([-+\d.,eE]{1,24}|nan|inf|N/A)")
_START = re.compile(
    r"Training starts at step (\d{1,12})(?:, with local batch size (\d{1,9}), global batch size (\d{1,9}), "
    r"sequence length (\d{1,9}), total steps (\d{1,12}))?"
)
_SIZE = re.compile(r"size: ([\d,]{1,20}) total parameters")
# With pipeline parallelism only the last stage knows the loss; the others print this.
_NO_LOSS = -1.0
MOST_OFF = 3.0  # by which tokens a step may seem to change; more is a clock that was set


class Torchtitan(Format):
    """Step time is not printed: it is the time between two lines of one writer over the steps between."""

    name = "torchtitan"
    triggers = ("memory: ", "Training starts at step", "total parameters", "Training completed")

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, float]] = {}
        self._tokens: dict[
            str, tuple[float, bool]
        ] = {}  # of a step, by time and rate; whether the last did not fit

    def feed(self, line: Line) -> Iterable[Item]:
        match = _STEP.search(line.full)
        if match is None:
            yield from _marks(line.text)
            return
        if match.group(1):
            return  # validation
        fields = dict(_FIELD.findall(line.full, match.end()))
        step = Step(int(match.group(2)))
        loss = grouped(fields.get("loss", ""))
        step.loss = None if loss == _NO_LOSS else loss
        step.grad_norm = grouped(fields.get("grad_norm", ""))
        step.tokens_per_second_per_gpu = grouped(fields.get("tps") or fields.get("wps") or "")
        step.logged_tflops = grouped(fields.get("tflops", ""))
        if step.logged_tflops is not None:
            step.logged_tflops_kind = "model"
        step.step_time_ms = self._sane(self._time(step.iteration, line), step, line.prefix.label)
        reserved = grouped(fields.get("memory", ""))
        if reserved is not None:
            yield RankMemory(line.prefix.rank, None, reserved, None, reserved)
        yield Record(step, TRAINER, line.prefix.time)

    def _sane(self, ms: float | None, step: Step, label: str) -> float | None:
        """The time between two lines, unless the clock was set meanwhile: by the rate, each step has as many tokens."""
        rate = step.tokens_per_second_per_gpu
        if ms is None or not rate:
            return ms
        tokens = ms * rate
        known, off = self._tokens.get(label, (tokens, False))
        fits = known / MOST_OFF < tokens < known * MOST_OFF
        # A second step that does not fit either means that the batch has changed.
        self._tokens[label] = (tokens if fits or off else known, not fits and not off)
        return ms if fits else None

    def _time(self, iteration: int, line: Line) -> float | None:
        now = line.prefix.time
        if now is None:
            return None
        label = line.prefix.label
        before = self._before.get(label)
        if before is None or iteration != before[0]:
            self._before[label] = (iteration, now)
        if before is None or iteration <= before[0] or now <= before[1]:
            return None
        return round(1000.0 * (now - before[1]) / (iteration - before[0]), 3)


def _marks(text: str) -> Iterable[Item]:
    start = _START.search(text)
    if start is not None:
        yield Mark("start", only_label=True)
        names = ("global_batch_size", "seq_length", "train_iters")
        for name, value in zip(names, start.groups()[2:]):
            if value:
                yield Fact(name, value)
    size = _SIZE.search(text)
    if size is not None:
        yield Fact("total_parameters", size.group(1).replace(",", ""))
    if "Training completed" in text:
        yield Mark("ended")
