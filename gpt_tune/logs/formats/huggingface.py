"""Owns what the Hugging Face Trainer prints: dicts of figures, progress bars, and its children's dialects
(axolotl, ms-swift, LLaMA-Factory, TRL).

A dict carries no step number: it belongs to the bar drawn next. Without bars, dicts are numbered by order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpt_tune.logs.formats.base import (
    BAR,
    TRAINER,
    Fact,
    Format,
    Item,
    Line,
    Mark,
    Record,
    decimal,
    scaled,
    whole,
)
from gpt_tune.logs.types import RankMemory, Step

_DICT = re.compile(r"\{(['\"][^{}]{1,4000})\}")
_PAIR = re.compile(
    r"['\"]([^'\"]{1,80})['\"]: ?(?:'([^']{0,80})'|\"([^\"]{0,80})\""
    # A figure may come in the wrapping of its library: np.float64(2.5), tensor(2.5, device='cuda:0').
    r"|(?:np\.float\d{1,3}|numpy\.float\d{1,3}|tensor)\(([^,()'\"]{1,40})(?:,[^()]{0,80})?\)"
    r"|([^,'\"]{1,80}))(?:, ?|$)"
)
_BAR = re.compile(
    r"(?P<what>[A-Za-z][\w ()./-]{0,60}: {1,4})?(?P<percent>\d{1,3})%\|[^|]{0,240}\| {0,4}"
    r"(?P<now>\d{1,12})/(?P<total>\d{1,12}) \[[\d:?]{1,16}<[\d:?]{1,16}, {0,4}[\d.?]{1,16}(?:s/it|it/s)"
)
_TOTAL = re.compile(r"Total optimization steps = ([\d,]{1,16})")
_FRACTION = re.compile(r"(\d{1,12})/(\d{1,12})$")

_FIGURES = {
    "loss": ("loss", 0),
    "learning_rate": ("learning_rate", 0),
    "lr": ("learning_rate", 0),
    "grad_norm": ("grad_norm", 0),
    "train_speed(s/it)": ("step_time_ms", 3),
    "step_time_s": ("step_time_ms", 3),  # the QLoRA trainer shipped in templates/
    "tokens/train_per_sec_per_gpu": ("tokens_per_second_per_gpu", 0),
    "throughput(TFLOP/s/GPU)": ("logged_tflops", 0),
    "loss_scale": ("loss_scale", 0),
}
_NUMBERED = ("iteration", "global_step/max_steps")
_ALLOCATED = ("memory/max_mem_allocated(gib)", "memory/max_allocated (GiB)", "allocated_gib")
_RESERVED = ("memory/device_mem_reserved(gib)", "memory/device_reserved (GiB)", "memory(GiB)", "reserved_gib")


@dataclass(slots=True)
class _Waiting:
    """A dict whose step number is not known yet."""

    step: Step
    time: float | None


class HuggingFace(Format):
    """Dicts of figures and bars of one file."""

    name = "huggingface"
    triggers = (
        "'loss':", '"loss":', "%|", "train_runtime", "train metrics", "Total optimization steps",
        "Running training", "Training completed.",
    )  # fmt: skip

    def __init__(self) -> None:
        self._waiting: _Waiting | None = None
        self._total: int | None = None
        self._at: int | None = None  # the training bar's last state
        self._placed = 0  # step of the last dict placed
        self._order = 0  # dicts so far, for logs without bars

    def feed(self, line: Line) -> Iterable[Item]:
        text = line.text
        events: list[tuple[int, re.Match[str], bool]] = []
        if "{" in text:
            events += [(m.start(), m, True) for m in _DICT.finditer(text)]
        if "%|" in text:
            events += [(m.start(), m, False) for m in _BAR.finditer(text)]
        for _, match, is_dict in sorted(events, key=lambda e: e[0]):
            yield from self._dict(match.group(1), line) if is_dict else self._bar(match)
        if not events:
            yield from self._marks(text)

    def finish(self) -> Iterable[Item]:
        yield from self._place(None)

    def _marks(self, text: str) -> Iterator[Item]:
        if "Running training" in text:
            self._total = self._at = None
            self._placed = 0
            yield Mark("start", only_label=True)
        elif "train metrics" in text or "Training completed." in text:
            yield Mark("ended")
        total = _TOTAL.search(text)
        if total is not None:
            self._total = int(total.group(1).replace(",", ""))
            yield Fact("train_iters", str(self._total))

    def _dict(self, body: str, line: Line) -> Iterator[Item]:
        pairs = {m.group(1): next((g for g in m.groups()[1:] if g), "").strip() for m in _PAIR.finditer(body)}
        if "loss" not in pairs:
            if "train_runtime" in pairs:
                yield from self._place(None)
                yield Mark("ended")
            return
        self._note_name(pairs, line.full)
        step = _read(pairs)
        yield from _memory(pairs, line.prefix.rank)
        if step.iteration >= 0:
            yield Record(step, TRAINER, line.prefix.time)
            return
        yield from self._place(None)
        if self._at is None and self._total is None:
            self._order += 1
            step.iteration = self._order
            yield Record(step, TRAINER, line.prefix.time, ordinal=True)
        self._waiting = _Waiting(step, line.prefix.time)

    def _note_name(self, pairs: dict[str, str], full: str) -> None:
        if any(key.startswith("memory/") for key in pairs) or "axolotl" in full:
            self.name = "axolotl"
        elif "train_speed(s/it)" in pairs or "train_speed(iter/s)" in pairs:
            self.name = "ms-swift"
        elif "llamafactory" in full or "current_steps" in pairs:
            self.name = "llama-factory"

    def _bar(self, match: re.Match[str]) -> Iterator[Item]:
        now, total = int(match.group("now")), int(match.group("total"))
        if match.group("what") or total == 0 or now > total:
            return  # loading shards, mapping a data set
        if self._total is None:
            self._total = total
        if total != self._total:
            return  # evaluation
        yield from self._place(now)
        self._at = now
        if now > 0:
            yield Record(Step(now, total_iterations=total), BAR)

    def _place(self, upcoming: int | None) -> Iterator[Item]:
        """Gives a waiting dict its step: the bar is drawn anew right after it, at that step."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        if upcoming is None:
            if self._at is None:
                return  # stays numbered by order
            number = self._at if self._at > self._placed else self._at + 1
        elif self._at is None:
            number = upcoming
        else:
            number = min(upcoming, self._at + 1)
        if number <= 0:
            return
        self._placed = number
        step = waiting.step
        numbered = Step(number, total_iterations=self._total)
        for name in ("loss", "learning_rate", "grad_norm", "step_time_ms", "tokens_per_second_per_gpu"):
            setattr(numbered, name, getattr(step, name))
        yield Record(numbered, TRAINER, waiting.time)


def _read(pairs: dict[str, str]) -> Step:
    step = Step(-1)
    for key, (name, power) in _FIGURES.items():
        if key in pairs:
            setattr(step, name, scaled(pairs[key], power))
    if step.logged_tflops is not None:
        step.logged_tflops_kind = "model"
    speed = decimal(pairs.get("train_speed(iter/s)", ""))
    if speed and step.step_time_ms is None:
        step.step_time_ms = 1000.0 / speed
    for key in _NUMBERED:
        fraction = _FRACTION.match(pairs.get(key, ""))
        if fraction is not None:
            step.iteration, step.total_iterations = int(fraction.group(1)), int(fraction.group(2))
    current = (
        whole(pairs.get("current_steps", "")) if "current_steps" in pairs else whole(pairs.get("step", ""))
    )
    if step.iteration < 0 and current is not None:
        step.iteration, step.total_iterations = current, whole(pairs.get("total_steps", ""))
    return step


def _memory(pairs: dict[str, str], rank: int | None) -> Iterator[RankMemory]:
    allocated = next((decimal(pairs[k]) for k in _ALLOCATED if k in pairs), None)
    reserved = next((decimal(pairs[k]) for k in _RESERVED if k in pairs), None)
    if allocated is not None or reserved is not None:
        yield RankMemory(rank, allocated, reserved, allocated, reserved)
