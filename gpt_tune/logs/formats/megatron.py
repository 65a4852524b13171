"""Owns the ` key: value | ` step lines of the Megatron family: Megatron-LM v1 to core 0.19, Megatron-DeepSpeed in
all its branches, BigScience, GPT-NeoX, and what Megatron-Bridge and ms-swift print in that form.

Fields are matched by key, since their order, number and units changed over the versions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from gpt_tune.logs.formats.base import TRAINER, Format, Item, Line, Record, decimal, scaled, whole
from gpt_tune.logs.types import Step, TflopsKind

ANCHOR = "elapsed time per iteration"

# key -> (field of Step, power of ten to the field's unit).
NUMBERS: dict[str, tuple[str, int]] = {
    "elapsed time per iteration (ms)": ("step_time_ms", 0),
    "elapsed time per iteration (s)": ("step_time_ms", 3),
    "learning rate": ("learning_rate", 0),
    "loss scale": ("loss_scale", 0),
    "grad norm": ("grad_norm", 0),
    "samples per second": ("samples_per_second", 0),
    "samples/sec": ("samples_per_second", 0),
    "tokens per gpu per second (tgs)": ("tokens_per_second_per_gpu", 0),
    "TFLOPs": ("logged_tflops", 0),
    "TeraFLOPs": ("logged_tflops", 0),
    "throughput per GPU (TFLOP/s/GPU)": ("logged_tflops", 0),
    # AMD's forks: Primus and ROCm's Megatron-LM.
    "compute per GPU (TFLOP/s/GPU)": ("logged_tflops", 0),
    "tokens per GPU (tokens/s/GPU)": ("tokens_per_second_per_gpu", 0),
    "tokens/s/GPU inst/harmonic mean": ("tokens_per_second_per_gpu", 0),
    "Tokens per second per GPU (Tok/s/GPU)": ("tokens_per_second_per_gpu", 0),
}
COUNTS: dict[str, str] = {
    "consumed samples": "consumed_samples",
    "global batch size": "global_batch_size",
    "number of skipped iterations": "skipped",
    "number of nan iterations": "nan",
}
KINDS: dict[str, TflopsKind] = {
    "TFLOPs": "hardware",
    "TeraFLOPs": "hardware",
    "throughput per GPU (TFLOP/s/GPU)": "model",
    "compute per GPU (TFLOP/s/GPU)": "model",
    "approx flops per GPU": "hardware",
}
# Known keys that are neither a loss nor a figure of ours.
OTHERS = frozenset(
    (
        "consumed tokens", "skipped samples", "decoupled learning rate", "energy per GPU (J/iter/GPU)",
        "power per GPU (W/GPU)", "num zeros", "params norm", "curriculum seqlen", "random ltd reserved length",
        "actual seqlen", "params(B)", "moe params(B)", "MFU", "HFU", "max attention logit", "eta",
    )
)  # fmt: skip
KNOWN = frozenset((*NUMBERS, *COUNTS, *OTHERS, "approx flops per GPU"))
# Losses stand anywhere between the elapsed time and the loss scale, among these.
WITHIN_ZONE = frozenset(
    (
        "learning rate", "decoupled learning rate", "global batch size", "approx flops per GPU", "MFU", "HFU",
        "throughput per GPU (TFLOP/s/GPU)", "energy per GPU (J/iter/GPU)", "power per GPU (W/GPU)",
        "compute per GPU (TFLOP/s/GPU)", "tokens per GPU (tokens/s/GPU)", "tokens/s/GPU inst/harmonic mean",
        "Tokens per second per GPU (Tok/s/GPU)",
    )
)  # fmt: skip
DEEPSPEED_KEYS = frozenset(
    (
        "consumed tokens", "samples per second", "TFLOPs", "TeraFLOPs", "tokens per gpu per second (tgs)",
        "actual seqlen",
    )
)  # fmt: skip
MAIN_LOSSES = ("lm loss", "lm-loss", "lm_loss", "loss", "total loss")
# Losses that are added to the main one: they say nothing when the main one is missing.
AUXILIARY = re.compile(r"balanc|moe|\bz[_ -]?loss|aux|mtp|router|indexer|ppl|perplexity", re.IGNORECASE)

_ITERATION = re.compile(r"iteration\s{1,16}(\d{1,12})\s{0,2}/\s{0,12}(\d{1,12})\s{0,4}$")
# Primus prints the figure of this step and an average behind it: `2701.3/2712.7`, `615.5 (avg 615.5)`.
_WITH_AVERAGE = re.compile(r"([^\s/()]{1,32}) ?(?:/[^\s/()]{1,32}|\(avg [^\s/()]{1,32}\))$")
_FLOPS = re.compile(r"([\d.,]{1,24})\s?([KMGTPE]?)FLOPS$")
_FLOPS_POWER = {"": -12, "K": -9, "M": -6, "G": -3, "T": 0, "P": 3, "E": 6}
# Another process' text inside a record; `print(..., flush=True)` of several ranks into one file does that.
_INTRUDER = re.compile(
    r"\[Rank \d{1,7}\] \(after \d{1,9} iterations\) memory \([MG]B\).{0,400}?max reserved: [\d.,]{1,24}"
)

MAX_PIECES = 16  # a record hard-wrapped or cut by srun comes in at most this many lines
MAX_WAIT = 64  # and its continuation within this many lines of all ranks
MAX_WRITERS = 512
_STARTS = re.compile(
    r"(?:samples/sec: [\d.,]{1,24} \|)?\s{0,4}iteration\s{1,16}\d{1,12}\s{0,2}/\s{0,12}\d{1,12}\s{0,4}\|"
)
_SEPARATE_FLOPS = re.compile(r"(?:TeraFLOPs|Effective Tera Flops per GPU): ([\d.,]{1,24})(?=\s|\||$)")

Dialect = Literal["megatron-lm", "megatron-deepspeed", "bigscience", "gpt-neox"]


@dataclass(slots=True)
class Draft:
    """A record while its segments are read. The first value of a key stands; a repeated key closes it."""

    step: Step
    losses: dict[str, float] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    zone: bool = False  # between elapsed time and loss scale, where losses stand
    closed: bool = False
    dialect: Dialect = "megatron-lm"


def split_records(text: str) -> Iterator[tuple[Draft, bool]]:
    """Every record on a line, and whether it is complete. Glued and nested ones never share a number."""
    draft: Draft | None = None
    early: list[tuple[str, str]] = []  # NeoX prints samples/sec before the iteration
    segments = text.split("|")
    terminated = segments[:-1]  # what follows the last bar may be cut at any character
    for segment in terminated:
        match = _ITERATION.search(segment)
        if match is not None:
            if draft is not None:
                yield draft, is_complete(draft, ended=True)
            draft = Draft(Step(int(match.group(1)), total_iterations=int(match.group(2))))
            for key, value in early:
                put(draft, key, value)
            early = []
            continue
        key, colon, value = segment.rpartition(":")
        if not colon:
            continue
        key, value = key.strip(), value.strip()
        if key.endswith("samples/sec"):
            key = "samples/sec"  # the first key of a line stands behind its prefixes
        if draft is None or key == "samples/sec":
            # A second record's samples/sec closes the first one.
            early = [(key, value)] if key == "samples/sec" else []
        elif not draft.closed:
            put(draft, key, value)
    if draft is not None:
        yield draft, is_complete(draft, ended=not segments[-1].strip())


def put(draft: Draft, key: str, value: str) -> None:
    """One `key: value` into the record."""
    if key in draft.keys:
        draft.closed = True
        return
    step = draft.step
    if key in NUMBERS:
        name, power = NUMBERS[key]
        average = _WITH_AVERAGE.match(value)
        number = scaled(average.group(1) if average is not None else value, power)
        if number is None:
            return
        setattr(step, name, number)
    elif key in COUNTS:
        count = whole(value)
        if count is None:
            return
        setattr(step, COUNTS[key], count)
    elif key == "approx flops per GPU":
        match = _FLOPS.match(value)
        if match is not None:
            step.logged_tflops = scaled(match.group(1), _FLOPS_POWER[match.group(2)])
    elif key not in OTHERS:
        # Forks print other figures behind the time; what is no loss by its name can be one only behind the batch size.
        named = "loss" in key.lower()
        loss = decimal(value) if named or (draft.zone and "global batch size" in draft.keys) else None
        if loss is None:
            return
        draft.losses[key] = loss
    draft.keys.add(key)
    if key in KINDS:
        step.logged_tflops_kind = KINDS[key]
    if key in KNOWN:
        draft.zone = key.startswith("elapsed") or (draft.zone and key in WITHIN_ZONE)
    _note_dialect(draft, key)


def _note_dialect(draft: Draft, key: str) -> None:
    if key in ("samples/sec", "approx flops per GPU"):
        draft.dialect = "gpt-neox"
    elif key == "elapsed time per iteration (s)":
        draft.dialect = "bigscience"
    elif draft.dialect == "megatron-lm" and key in DEEPSPEED_KEYS:
        draft.dialect = "megatron-deepspeed"


def is_complete(draft: Draft, ended: bool) -> bool:
    """Whether nothing that every version prints is missing. ended: nothing stands behind its last bar."""
    keys = draft.keys
    if draft.step.step_time_ms is None:
        return False
    if "number of nan iterations" in keys:
        return True
    # v1.0 had no counters, and private copies print less; but a record cut behind some bar is none.
    return ended and (bool(draft.losses) or ("consumed samples" not in keys and "loss scale" in keys))


def main_loss_key(losses: Iterable[str]) -> str | None:
    """The key of the language-model loss among those printed, None when only auxiliary ones were."""
    keys = list(losses)
    for key in MAIN_LOSSES:
        if key in keys:
            return key
    named = [k for k in keys if not AUXILIARY.search(k)]
    with_word = [k for k in named if "loss" in k.lower()]
    return next(iter(with_word or named), None)


def close(draft: Draft) -> Step:
    """The finished step. A NaN loss is the float nan: the trainers print it by leaving the field out."""
    step = draft.step
    key = main_loss_key(draft.losses)
    step.loss = draft.losses[key] if key is not None else None
    if step.loss is None and step.skipped == 0 and "number of nan iterations" in draft.keys:
        step.loss = math.nan
    if step.loss == 0.0 and step.skipped:
        step.loss = None  # the average over no step at all, printed as 0 since core 0.17
    return step


class Megatron(Format):
    """Reads the family's step lines, joining records that were wrapped or cut on the way."""

    name = "megatron-lm"
    # A record that was cut may have lost all but its beginning, which is padded to 8 digits.
    triggers = (ANCHOR, "iteration  ", "TeraFLOPs: ", "Effective Tera Flops")

    def __init__(self) -> None:
        self._pieces: dict[str, _Pieces] = {}
        self._last: Record | None = None

    @property
    def pending(self) -> bool:
        return bool(self._pieces)

    def feed(self, line: Line) -> Iterable[Item]:
        text = line.full
        if "memory (" in text:
            text = _INTRUDER.sub("", text)
        match = _SEPARATE_FLOPS.search(text)
        if match is not None and ANCHOR not in text:
            yield from self._attach(match.group(1))
        elif ANCHOR in text or "iteration" in text or self._pieces:
            yield from self._read(text, line)

    def _read(self, text: str, line: Line) -> Iterator[Item]:
        label = line.prefix.label
        waiting = self._pieces.pop(label, None)
        start = _STARTS.search(text)
        if waiting is not None and start is None:
            text = waiting.text + text[line.prefix.end :]
        elif start is None:
            self._age()
            return
        else:
            waiting = None
        # A terminal wraps every piece but the last at the same width.
        wrapped = waiting is not None and waiting.width == len(line.full)
        finished = False
        for draft, complete in split_records(text):
            finished = complete and text.rstrip().endswith("|") and not wrapped
            if complete:
                yield self._record(draft, line)
        if not finished:
            self._keep(label, text, waiting, len(line.full))
        self._age()

    def _keep(self, label: str, text: str, waiting: _Pieces | None, width: int) -> None:
        """Holds an unfinished record until its continuation comes."""
        count = 1 if waiting is None else waiting.count + 1
        if count >= MAX_PIECES or len(self._pieces) >= MAX_WRITERS:
            return
        starts = list(_STARTS.finditer(text))
        if starts:
            self._pieces[label] = _Pieces(text[starts[-1].start() :], count, width)

    def _age(self) -> None:
        for label, pieces in list(self._pieces.items()):
            pieces.age += 1
            if pieces.age > MAX_WAIT:
                del self._pieces[label]

    def _record(self, draft: Draft, line: Line) -> Record:
        if draft.dialect != "megatron-lm":
            self.name = draft.dialect
        self._last = Record(close(draft), TRAINER, line.prefix.time)
        return self._last

    def note(self, iteration: int) -> None:
        """A step of this format was read elsewhere (see logs.bulk)."""
        self._last = Record(Step(iteration), TRAINER)

    def _attach(self, tflops: str) -> Iterator[Item]:
        """TFLOPS of the step just printed, on a line of their own (older Megatron-DeepSpeed branches)."""
        if self._last is None:
            return
        self.name = "megatron-deepspeed" if self.name == "megatron-lm" else self.name
        value = decimal(tflops)
        step = Step(self._last.step.iteration, logged_tflops=value, logged_tflops_kind="hardware")
        self._last = None
        yield Record(step, TRAINER, fills=True)


@dataclass(slots=True)
class _Pieces:
    text: str
    count: int
    width: int  # of the newest piece's line
    age: int = 0  # lines seen since
