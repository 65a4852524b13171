"""Owns what one log line says about itself: how bad it is, who wrote it, and how a pane shows it. Pure and cheap."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from gpt_tune.logs.prefixes import read as read_prefix

Level = Literal["error", "warning", "info", "debug", ""]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")  # rising
HEAD = 320  # characters looked at: a logger says its level at the front

# Trainers pad their figures to columns 15 wide; indents stay.
_BLANKS = re.compile(r"(?<=\S) {2,}")
_HIDDEN = {0x00AD, 0x061C, 0xFEFF, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070)}
_SHOWN: dict[int, str | None] = {
    **dict.fromkeys((*range(32), *range(127, 160)), "�"),
    0x09: "    ",
    **dict.fromkeys(_HIDDEN),
}

_WORDS: dict[str, Level] = {
    "DEBUG": "debug", "TRACE": "debug", "INFO": "info", "WARN": "warning", "WARNING": "warning",
    "ERROR": "error", "CRITICAL": "error", "FATAL": "error",
    "I": "info", "W": "warning", "E": "error", "F": "error", "C": "error", "V": "debug",
}  # fmt: skip
_WORD = r"(?:DEBUG|TRACE|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
# Where loggers put their level. A bare word in a sentence ("set the level to ERROR") is none of these.
_LOGGER = re.compile(
    rf"\[\s?(?P<bracket>{_WORD})(?=[\]|\s:])"
    rf"|(?<![\w=./-])(?P<colon>{_WORD})\s?:"
    rf"|[|\]-]\s{{1,8}}(?P<bar>{_WORD})\s{{0,8}}[|\[-]"
    rf"|\d\d:\d\d(?:[.,]\d{{1,9}})?(?:Z|[+-]\d\d:?\d\d)?\s{{1,4}}(?:[\w.-]{{1,40}}\s)?(?P<stamp>{_WORD})\b"
    rf"|\bNCCL (?P<nccl>{_WORD})\b"
    r"|(?:^|[\[\s:])(?P<glog>[IWEFCV])\d{4} \d\d:\d\d:\d\d"
)
_ERROR = re.compile(
    r"^(?:Traceback \(most recent call last\)"
    r"|(?:[\w]{1,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Interrupt)(?::|$)"
    r"|[\w.-]{1,40}(?:\[\d{1,9}\])?: (?:error|fatal)(?: error)?: "
    r"|(?:error|fatal|Error|Fatal)(?: error)?: "
    r"|(?:Killed|Segmentation fault|Aborted|Bus error)(?: \(core dumped\))?$"
    r"|terminate called after throwing"
    r"|\*\*\* (?:STEP|JOB) )"
    r"|NVRM: Xid|CUDA error: |CUDA out of memory|: Assertion .{1,200} failed|line \d{1,6}: .{1,200}: command not found"
)
_WARNING = re.compile(
    r"\b[A-Z]\w{0,40}Warning: |^(?:[\w.-]{1,40}: )?(?:warning|Warning|WARN): |OVERFLOW! Rank|^\*{2,} ?WARNING"
)
# What a line must contain to be worth a pattern: looking for a plain text is ten times cheaper.
_LOGGED = ("INFO", "WARN", "ERROR", "DEBUG", "TRACE", "CRITICAL", "FATAL")
_GLOG = re.compile(r"[IWEFCV]\d{4} ")
_FATAL = (
    "Error", "error", "Exception", "Interrupt", "Traceback", "fatal", "Fatal", "Killed", "fault", "Aborted",
    "terminate", "*** ", "Xid", "CUDA", "Assertion", "command not found",
)  # fmt: skip
_WARNED = ("Warning", "warning", "WARN", "OVERFLOW")


def _has(text: str, words: tuple[str, ...]) -> bool:
    return any(word in text for word in words)


class LineFacts(NamedTuple):
    """rank is a global one, or None. body: the text without prefixes. text: the whole line."""

    level: Level
    rank: int | None
    host: str | None
    body: str
    text: str


def shown(text: str) -> str:
    """A line as a pane shows it: harmless, its padding squeezed. Search and fold work on this."""
    text = text if text.isprintable() else text.translate(_SHOWN)
    return _BLANKS.sub(" ", text) if "  " in text else text


def read_line(text: str) -> LineFacts:
    """What a clean line says about itself."""
    prefix = read_prefix(text)
    body = text[prefix.end :].lstrip()
    return LineFacts(level_of(text, body), prefix.rank, prefix.host, body, text)


def level_of(text: str, body: str | None = None) -> Level:
    """How bad a line says it is; "" when it does not say. body: the text without prefixes, where it is known."""
    head = text[:HEAD]
    if body is None:
        body = head[read_prefix(head).end :].lstrip()
    level: Level = ""
    if _has(head, _LOGGED) or _GLOG.search(head):
        match = _LOGGER.search(head)
        level = _WORDS[match.group(match.lastgroup or "")] if match is not None else ""
    if level == "error":
        return level
    # An exception printed by a logger at INFO still is one, and most are printed by none.
    if _has(body, _FATAL) and _ERROR.search(body[:HEAD]):
        return "error"
    return level or ("warning" if _has(body, _WARNED) and _WARNING.search(body[:HEAD]) else "")


# What a warning or an error must contain, as one text is looked through for it.
_ALARM_WORDS = ("WARN", "ERROR", "CRITICAL", "FATAL", *_FATAL, *_WARNED)
_ALARM_GLOG = re.compile(r"[WEFC]\d{4} \d\d:")


def alarms(lines: Sequence[str]) -> list[int]:
    """Indexes of the lines that say they are a warning or an error; a hundred thousand lines take a fraction of what
    asking each would.
    """
    text = "\n".join(lines)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    maybe: set[int] = set()
    for word in _ALARM_WORDS:
        at = text.find(word)
        while at >= 0:
            index = bisect_right(starts, at) - 1
            maybe.add(index)
            at = text.find(word, starts[index + 1])
    maybe.update(bisect_right(starts, match.start()) - 1 for match in _ALARM_GLOG.finditer(text))
    return [i for i in sorted(maybe) if level_of(lines[i]) in ("warning", "error")]


def at_least(level: Level, wanted: Level) -> bool:
    """Whether a line is as bad as wanted, or worse. A line without a level counts as information."""
    return LEVELS.index(level or "info") >= LEVELS.index(wanted or "debug")
