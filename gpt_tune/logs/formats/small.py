"""Owns the one-line formats of small trainers: torchtune, nanoGPT, fairseq, AWS' FSDP sample, MaxText, LitGPT."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpt_tune.logs.formats.base import TRAINER, Format, Item, Line, Record, decimal, scaled
from gpt_tune.logs.types import RankMemory, Step

_TUNE_BAR = re.compile(r"(?<!\d)(\d{1,9})\|(\d{1,12})\|Loss: ([-+\w.]{1,32}?):? {0,4}(?=\d{1,3}%\||$|\s)")
_TUNE_STEP = re.compile(r"Step (\d{1,12}) \| (.{0,2000})")
_TUNE_PAIR = re.compile(r"(\w{1,60}):([-+\w.]{1,32})")


class Torchtune(Format):
    """`epoch|step|Loss: x` as a bar's description, or `Step n | key:value ..`."""

    name = "torchtune"
    triggers = ("%|", "tokens_per_second_per_gpu:")

    def feed(self, line: Line) -> Iterable[Item]:
        found = False
        if "|Loss: " not in line.full and "Step " not in line.full:
            return
        for match in _TUNE_BAR.finditer(line.full):
            found = True
            yield Record(Step(int(match.group(2)), loss=decimal(match.group(3))), TRAINER, line.prefix.time)
        logged = None if found else _TUNE_STEP.search(line.full)
        if logged is None:
            return
        pairs = dict(_TUNE_PAIR.findall(logged.group(2)))
        step = Step(int(logged.group(1)))
        step.loss = decimal(pairs.get("loss", ""))
        step.learning_rate = decimal(pairs.get("lr", ""))
        step.grad_norm = decimal(pairs.get("grad_norm", ""))
        step.tokens_per_second_per_gpu = decimal(pairs.get("tokens_per_second_per_gpu", ""))
        allocated = decimal(pairs.get("peak_memory_alloc", ""))
        reserved = decimal(pairs.get("peak_memory_reserved", ""))
        if allocated is not None or reserved is not None:
            yield RankMemory(line.prefix.rank, allocated, reserved, allocated, reserved)
        yield Record(step, TRAINER, line.prefix.time)


_NANOGPT = re.compile(
    r"\biter (\d{1,12}): loss ([-+\w.]{1,24}), time ([-+\w.]{1,24}?) ?ms(?:, mfu [-\d.]{1,12}%)?"
)


class NanoGpt(Format):
    """`iter n: loss x, time y ms`; its `step n: train loss` is evaluation."""

    name = "nanogpt"
    triggers = (", time ",)

    def feed(self, line: Line) -> Iterable[Item]:
        for match in _NANOGPT.finditer(line.full):
            step = Step(int(match.group(1)), decimal(match.group(3)), decimal(match.group(2)))
            yield Record(step, TRAINER, line.prefix.time)


_FAIRSEQ = re.compile(r"\bepoch (\d{1,6}): {1,12}(\d{1,12}) / {0,4}(\d{1,12}) (?=loss=)")
_FAIRSEQ_PAIR = re.compile(r"(\w{1,40})=([-+\w.]{1,32})(?=,|\s|$)")


class Fairseq(Format):
    """`epoch 001:  100 / 167138 loss=.., ups=..`: updates per second over the interval give the step time."""

    name = "fairseq"
    triggers = tuple(f", ups={digit}" for digit in range(10))

    def feed(self, line: Line) -> Iterable[Item]:
        match = _FAIRSEQ.search(line.full)
        if match is None:
            return
        pairs = dict(_FAIRSEQ_PAIR.findall(line.full, match.end()))
        updates = decimal(pairs.get("num_updates", ""))
        step = Step(int(updates) if updates is not None else int(match.group(2)))
        step.loss = decimal(pairs.get("loss", ""))
        step.learning_rate = decimal(pairs.get("lr", ""))
        step.grad_norm = decimal(pairs.get("gnorm", ""))
        step.loss_scale = decimal(pairs.get("loss_scale", ""))
        rate = decimal(pairs.get("ups", ""))
        step.step_time_ms = 1000.0 / rate if rate else None
        yield Record(step, TRAINER, line.prefix.time)


_FSDP = re.compile(
    r"\bBatch (\d{1,12}) Loss: ([-+\w.]{1,24}), Speed: ([-+\w.]{1,24}) samples/sec, lr: ([-+\w.]{1,24})"
)


class AwsFsdp(Format):
    """`Batch n Loss: x, Speed: y samples/sec, lr: z`; a step time would need the batch size."""

    name = "aws-fsdp"
    triggers = (" samples/sec, lr: ",)

    def feed(self, line: Line) -> Iterable[Item]:
        for match in _FSDP.finditer(line.full):
            step = Step(int(match.group(1)), loss=decimal(match.group(2)))
            step.samples_per_second = decimal(match.group(3))
            step.learning_rate = decimal(match.group(4))
            yield Record(step, TRAINER, line.prefix.time)


_MAXTEXT = re.compile(
    r"\bcompleted step: (\d{1,12}), seconds: ([-+\w.]{1,24}?), (?=TFLOP/s/device: )(.{1,400})"
)
_MAXTEXT_PAIR = re.compile(r"([\w/]{1,40}): ([-+\w.]{1,32}?)(?=,|\s|$)")


class MaxText(Format):
    """`completed step: 5, seconds: 1.234, TFLOP/s/device: .., Tokens/s/device: .., loss: ..`, counted from 0."""

    name = "maxtext"
    triggers = ("TFLOP/s/device: ",)

    def feed(self, line: Line) -> Iterable[Item]:
        match = _MAXTEXT.search(line.full)
        if match is None:
            return
        pairs = dict(_MAXTEXT_PAIR.findall(match.group(3)))
        step = Step(int(match.group(1)), scaled(match.group(2), 3))
        step.loss = decimal(pairs.get("loss", ""))
        step.tokens_per_second_per_gpu = decimal(pairs.get("Tokens/s/device", ""))
        step.logged_tflops = decimal(pairs.get("TFLOP/s/device", ""))
        step.logged_tflops_kind = "model" if step.logged_tflops is not None else None
        yield Record(step, TRAINER, line.prefix.time)


_LITGPT = re.compile(
    r"\biter (\d{1,12}) step (\d{1,12}) \| loss train: ([-+\w.]{1,24}),.{0,60}?"
    r"\| iter time: [-+\w.]{1,24} ms( \(step\))?"
)


class LitGpt(Format):
    """`Epoch 1 | iter 10 step 5 | loss train: .., | iter time: .. ms (step)`: the time is of one micro batch."""

    name = "litgpt"
    triggers = ("| loss train: ",)

    def feed(self, line: Line) -> Iterable[Item]:
        match = _LITGPT.search(line.full)
        if match is not None and match.group(4):  # other micro batches belong to a step that is not done
            yield Record(Step(int(match.group(2)), loss=decimal(match.group(3))), TRAINER, line.prefix.time)
