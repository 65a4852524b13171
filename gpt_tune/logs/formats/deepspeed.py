"""Owns the lines of the DeepSpeed engine: its step counter, throughput timer and pipeline engine."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpt_tune.logs.formats.base import COUNTER, ENGINE, Format, Item, Line, Record, decimal, scaled
from gpt_tune.logs.types import RankMemory, Step

_N = r"[-+\w.,]{1,32}"
_COUNTER = re.compile(rf"\bstep=(\d{{1,12}}), skipped=(\d{{1,12}}), lr=\[({_N})?")
_TIMER = re.compile(
    r"(?:epoch=\d{1,9}/micro_step=\d{1,12}/global_step=(\d{1,12})|\b\d{1,9}/(\d{1,12})), "
    rf"(?:RunningAvgSamplesPerSec={_N}, CurrSamplesPerSec=({_N}?)|SamplesPerSec=({_N}?))(?=,? |,?$)"
    rf"(?:,? MemAllocated=([\d.,]{{1,32}}?) ?GB, MaxMemAllocated=([\d.,]{{1,32}}?) ?GB)?"
)
_PIPELINE = re.compile(
    rf"steps: (\d{{1,12}}) loss: ({_N}) (?:[\w /.-]{{1,40}}: {_N} ){{0,16}}?"
    rf"iter time \(s\): ({_N}) samples/sec: ({_N})"
)
_USAGE = re.compile(
    r"MA ([\d.]{1,24}) GB\s{1,16}Max_MA ([\d.]{1,24}) GB\s{1,16}CA ([\d.]{1,24}) GB\s{1,16}Max_CA ([\d.]{1,24}) GB"
)


class Engine(Format):
    """`step=.., skipped=..` and the throughput timer. `skipped` is cumulative there; a Step counts the interval."""

    name = "deepspeed"
    triggers = (", skipped=", "SamplesPerSec=")

    def __init__(self) -> None:
        self._skipped: int | None = None
        self._step = -1

    def feed(self, line: Line) -> Iterable[Item]:
        for match in _COUNTER.finditer(line.full):
            yield from self._counter(int(match.group(1)), int(match.group(2)), match.group(3), line)
        for match in _TIMER.finditer(line.full):
            yield from _timer(match, line)

    def _counter(self, iteration: int, skipped: int, rate: str | None, line: Line) -> Iterable[Item]:
        known = self._skipped if iteration > self._step else None
        self._step, self._skipped = iteration, skipped
        if iteration == 0:
            return  # printed while the engine is built
        step = Step(iteration, learning_rate=decimal(rate.rstrip(",")) if rate else None)
        if known is not None and skipped >= known:
            step.skipped = skipped - known
        yield Record(step, COUNTER, line.prefix.time)


def _timer(match: re.Match[str], line: Line) -> Iterable[Item]:
    iteration = int(match.group(1) or match.group(2))
    rate = decimal(match.group(3) or match.group(4))
    # -inf until the timer's start_step.
    rate = rate if rate is not None and 0 < rate < float("inf") else None
    if iteration > 0:
        yield Record(Step(iteration, samples_per_second=rate), COUNTER, line.prefix.time)
    if match.group(5):
        yield RankMemory(None, decimal(match.group(5)), None, decimal(match.group(6)))


class Pipeline(Format):
    """The pipeline engine's own print. Megatron-DeepSpeed prints the same step again as ` iteration ..`."""

    name = "deepspeed-pipeline"
    triggers = ("iter time (s)",)

    def feed(self, line: Line) -> Iterable[Item]:
        for match in _PIPELINE.finditer(line.full):
            step = Step(
                int(match.group(1)),
                loss=decimal(match.group(2)),
                step_time_ms=scaled(match.group(3), 3),
                samples_per_second=decimal(match.group(4)),
            )
            yield Record(step, ENGINE, line.prefix.time)


class Usage(Format):
    """`see_memory_usage`: MA is allocated and CA reserved, GiB, of the rank that printed it (0)."""

    name = "deepspeed-usage"
    triggers = ("Max_MA ",)

    def feed(self, line: Line) -> Iterable[Item]:
        for match in _USAGE.finditer(line.full):
            now, peak, reserved, most = (decimal(g) for g in match.groups())
            yield RankMemory(line.prefix.rank, now, reserved, peak, most)
