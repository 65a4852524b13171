"""Owns NeMo: the progress printer of NeMo 2, the Lightning bar of NeMo 1, and Megatron-Bridge's step time."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpt_tune.logs.formats.base import BAR, TRAINER, Format, Item, Line, Record, decimal, scaled, whole
from gpt_tune.logs.types import Step

_EPOCH = re.compile(r"Training epoch (\d{1,9}), iteration (\d{1,12})/(\d{1,12})")
_KEYS = {
    "lr": ("learning_rate", 0),
    "reduced_train_loss": ("loss", 0),
    "train_step_timing in s": ("step_time_ms", 3),
    "TFLOPS_per_GPU": ("logged_tflops", 0),
    "grad_norm": ("grad_norm", 0),
}


class Nemo2(Format):
    """`Training epoch 0, iteration 7/19 | lr: .. | global_step: 7 | ..`; `iteration` counts within the epoch."""

    name = "nemo"
    triggers = ("Training epoch ",)

    def feed(self, line: Line) -> Iterable[Item]:
        match = _EPOCH.search(line.full)
        if match is None:
            return
        step = Step(-1)
        for part in line.full[match.end() :].split("|"):
            key, _, value = part.strip().partition(": ")
            value = value.strip()
            if key == "global_step":
                number = whole(value)
                step.iteration = -1 if number is None else number
            elif key == "global_batch_size":
                step.global_batch_size = whole(value)
            elif key == "consumed_samples":
                step.consumed_samples = whole(value)
            elif key in _KEYS:
                name, power = _KEYS[key]
                setattr(step, name, scaled(value, power))
        if step.logged_tflops is not None:
            step.logged_tflops_kind = "model"
        if step.iteration >= 0:
            yield Record(step, TRAINER, line.prefix.time)


_BAR = re.compile(
    r"Epoch (\d{1,9}): {1,4}:? {0,4}\d{1,3}%\|[^|]{0,240}\| {0,4}(\d{1,12})/(\d{1,12}) "
    r"\[[\d:]{1,16}<[\d:?]{1,16}([^\]]{0,600})\]"
)
_PAIR = re.compile(r"([A-Za-z_][\w/ -]{0,60})=([^,\]=]{0,40})(?:,|$)")


class Lightning(Format):
    """The progress bar: step from the bar, since `global_step=3.1e+4` is rounded. Its it/s is an average."""

    name = "lightning"
    triggers = ("%|",)

    def feed(self, line: Line) -> Iterable[Item]:
        for match in _BAR.finditer(line.full):
            epoch, now, total = (int(g) for g in match.groups()[:3])
            pairs = {k.strip(): v.strip() for k, v in _PAIR.findall(match.group(4))}
            if now == 0 or total == 0:
                continue
            if "reduced_train_loss" in pairs:
                self.name = "nemo"
            step = Step(epoch * total + now, total_iterations=total if epoch == 0 else None)
            keys = ("reduced_train_loss", "train_loss", "train_loss_step", "loss", "loss_step")
            loss = next((pairs[key] for key in keys if pairs.get(key)), "")
            step.loss = decimal(loss)
            step.step_time_ms = scaled(pairs.get("train_step_timing in s", ""), 3)
            samples = decimal(pairs.get("consumed_samples", ""))
            if samples is not None and "e" not in pairs["consumed_samples"].lower() and samples.is_integer():
                step.consumed_samples = int(samples)
            yield Record(step, BAR, line.prefix.time)


_STEP_TIME = re.compile(r"Step Time : ([\d.]{1,16})s GPU utilization: ([\d.]{1,16})(MODEL_)?TFLOP/s/GPU")


class BridgeStepTime(Format):
    """`Step Time : 9.12s` of rank 0, which names no iteration: the last rank's line beside it does.

    A log without such lines gets its steps numbered by order.
    """

    name = "megatron-bridge"
    triggers = ("Step Time : ",)

    def __init__(self) -> None:
        self._order = 0

    def feed(self, line: Line) -> Iterable[Item]:
        for match in _STEP_TIME.finditer(line.full):
            self._order += 1
            numbered = _bridge_step(match)
            numbered.iteration = self._order
            yield Record(numbered, BAR + 1, line.prefix.time, ordinal=True)
            yield Record(_bridge_step(match), BAR + 1, line.prefix.time, fills=True)


def _bridge_step(match: re.Match[str]) -> Step:
    step = Step(-1, step_time_ms=scaled(match.group(1), 3))
    tflops = decimal(match.group(2))
    if tflops:  # 0.0 is printed for models whose FLOPs it cannot count
        step.logged_tflops = tflops
        step.logged_tflops_kind = "model" if match.group(3) else "unknown"
    return step
