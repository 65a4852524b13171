"""Owns what a log format is: literals that give its lines away, and a reader of those lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpt_tune.logs.prefixes import Prefix
from gpt_tune.logs.rank_times import RankTime
from gpt_tune.logs.types import RankMemory, Step

# Which reader wins when several engines print one step: the trainer's own line over its engine's over a bar.
TRAINER, ENGINE, COUNTER, BAR = 40, 30, 20, 10

_NUMBER = re.compile(r"[-+]?(?:\d[\d.,]*(?:[eE][-+]?\d{1,4})?|\.\d+|[nN][aA][nN]|[iI][nN][fF](?:inity)?)$")
_SUFFIX = {"": 0, "K": 3, "M": 6, "B": 9, "G": 9, "T": 12, "P": 15, "E": 18}


@dataclass(slots=True)
class Line:
    """One candidate line: its text with prefixes, the text without, and what the prefixes say."""

    full: str
    text: str
    prefix: Prefix
    complete: bool = True  # False: the file ended in the middle of it


@dataclass(slots=True)
class Record:
    """A step read from one line. step.iteration -1: the line does not say which.

    time: seconds of the line's time stamp. ordinal: the iteration is a count of lines, not the trainer's.
    fills: adds to the step of that iteration and says nothing about where the run is; without an iteration, to
    the neighbouring step that took the same time.
    """

    step: Step
    priority: int
    time: float | None = None
    ordinal: bool = False
    fills: bool = False


@dataclass(slots=True)
class Mark:
    """Something that happened between steps.

    kind: start (a run begins: later steps are a new segment) | resumed (loaded a checkpoint; iteration) |
    saved (iteration) | ended (clean end) | fresh (no checkpoint found, starting from random weights) |
    validation (iteration).
    only_label: the mark holds for its own writer only, since every writer prints it.
    """

    kind: str
    iteration: int | None = None
    only_label: bool = False


@dataclass(slots=True)
class Fact:
    """Something the log says about the run as a whole: an argument and its value, as printed."""

    name: str
    value: str


Item = Record | RankMemory | RankTime | Mark | Fact


class Format:
    """One family of lines, read from one file: an instance may hold an unfinished record.

    name: the trainer's, as shown. triggers: a line without any of these literals is never of this format.
    """

    name = ""
    triggers: tuple[str, ...] = ()
    hurried = False  # whole blocks of the past are being read: what only refines a figure may be left out
    apart = False  # its lines of this block have been read already (see logs.timer_blocks)

    @property
    def pending(self) -> bool:
        """Whether the next lines are wanted even without a trigger."""
        return False

    def feed(self, line: Line) -> Iterable[Item]:
        """What a line says."""
        raise NotImplementedError

    def finish(self) -> Iterable[Item]:
        """What was still waiting for its continuation when the log ended."""
        return ()


def decimal(text: str) -> float | None:
    """A number whose comma, if any, is a locale's decimal point (`1524,4`). None when it is no number."""
    if not _NUMBER.match(text):
        return None
    if "," in text:
        text = text.replace(",", "") if "." in text else text.replace(",", ".", 1)
    return _float(text)


def grouped(text: str) -> float | None:
    """A number whose commas separate thousands (`1,770`). None when it is no number."""
    return _float(text.replace(",", "")) if _NUMBER.match(text) else None


def human(text: str) -> float | None:
    """A number with a suffix: `11.6K`, `85.8G`, `912.6`. None when it is no number."""
    suffix = text[-1:] if text[-1:] in _SUFFIX else ""
    number = text[: -len(suffix)] if suffix else text
    return scaled(number, _SUFFIX[suffix]) if _NUMBER.match(number) else None


def scaled(text: str, power: int) -> float | None:
    """text x 10^power, rounded once: `106.46` s in ms is 106460.0 and not its neighbour."""
    value = decimal(text)
    if value is None or value != value or power == 0:
        return value
    mantissa, _, exponent = text.replace(",", ".").lower().partition("e")
    return _float(f"{mantissa}e{int(exponent or 0) + power}") if "inf" not in mantissa else value


def whole(text: str) -> int | None:
    """An integer of at most 18 digits (what fits in 64 bits), or None."""
    text = text.strip()
    return int(text) if 0 < len(text) <= 18 and text.isascii() and text.isdigit() else None


def _float(text: str) -> float | None:
    """None also for a number too large for a double: only a printed inf is inf."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isinf(value) and text[-1].isdigit() else value
