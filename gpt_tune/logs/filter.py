"""Owns choosing log lines: by level, rank, node, text and pattern, typed as one short sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gpt_tune.errors import UserError, unknown_name
from gpt_tune.logs.lines import LEVELS, Level, LineFacts, at_least, read_line, shown
from gpt_tune.logs.safe_regex import SafePattern, safe_pattern
from gpt_tune.schedulers import hostlist

__all__ = ["LineFilter", "SafePattern", "parse_filter", "safe_pattern"]

MAX_RANK = 10_000_000
_KEYS = ("level", "rank", "node")
_OTHER_WORDS = {
    "warn": "warning",
    "err": "error",
    "errors": "error",
    "warnings": "warning",
    "critical": "error",
}
# A pattern between slashes, a quoted text, or a word.
_TOKEN = re.compile(r'/((?:[^/\\]|\\.){1,400})/(?=\s|$)|"([^"]{1,400})"|(\S{1,400})')


@dataclass(frozen=True, slots=True)
class LineFilter:
    """What lines are wanted; everything given must hold.

    level: that one and worse. ranks: [first, last] pairs. host: a hostlist or a pattern with *. words: plain
    texts, in any case. A line that names no rank (or host) is left out when ranks (or a host) are asked for.
    """

    level: Level = ""
    ranks: tuple[tuple[int, int], ...] = ()
    host: str = ""
    texts: tuple[str, ...] = ()
    pattern: SafePattern | None = None

    @property
    def empty(self) -> bool:
        """Whether everything is wanted."""
        return not (self.level or self.ranks or self.host or self.texts or self.pattern)

    def matches(self, line: LineFacts | str) -> bool:
        """Whether a line is wanted. Texts and patterns are looked for in what a pane shows."""
        facts = read_line(line) if isinstance(line, str) else line
        if self.level and not (at_least(facts.level, self.level) and (facts.level or self.level == "debug")):
            return False
        if self.ranks and not (facts.rank is not None and any(a <= facts.rank <= b for a, b in self.ranks)):
            return False
        if self.host and not (facts.host is not None and _is_host(facts.host, self.host)):
            return False
        if not (self.texts or self.pattern):
            return True
        text = shown(facts.text)
        lower = text.lower()
        if not all(wanted in lower for wanted in self.texts):
            return False
        return self.pattern is None or self.pattern.search(text)

    def words(self) -> str:
        """What is wanted, in words: `errors of ranks 0 to 7 on b200-3 with /nccl/`."""
        parts = [
            {"error": "errors", "warning": "warnings and errors"}.get(self.level, self.level and "all levels")
        ]
        if self.ranks:
            spans = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in self.ranks)
            parts.append(f"{'of rank' if spans.isdigit() else 'of ranks'} {spans}")
        if self.host:
            parts.append(f"on {self.host}")
        wanted = [f'"{t}"' for t in self.texts] + ([f"/{self.pattern.text}/"] if self.pattern else [])
        if wanted:
            parts.append(f"with {' and '.join(wanted)}")
        return " ".join(p for p in parts if p) or "all lines"


def parse_filter(text: str) -> LineFilter:
    """`level:error rank:0-7,12 node:b200-3 /nccl.*timeout/ "a text"`. UserError says what is wrong."""
    level: Level = ""
    ranks: tuple[tuple[int, int], ...] = ()
    host, pattern = "", None
    texts: list[str] = []
    for regex, quoted, word in _TOKEN.findall(text):
        key, colon, value = word.partition(":")
        if regex:
            if pattern is not None:
                raise UserError("There are two patterns.", "Join them: /one.*other/ or /one|other/.")
            pattern = safe_pattern(regex)
        elif quoted:
            texts.append(quoted.lower())
        elif colon and key == "level":
            level = _level(value)
        elif colon and key == "rank":
            ranks = _ranks(value)
        elif colon and key == "node":
            host = _host(value)
        else:
            texts.append(word.lower())
    return LineFilter(level, ranks, host, tuple(texts), pattern)


def _level(text: str) -> Level:
    wanted = _OTHER_WORDS.get(text.lower(), text.lower())
    for level in LEVELS:
        if level == wanted:
            return level
    raise unknown_name("level", text, LEVELS)


def _ranks(text: str) -> tuple[tuple[int, int], ...]:
    found = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = [first, last if dash else first]
        if not all(e.isascii() and e.isdigit() and int(e) <= MAX_RANK for e in ends):
            raise UserError(f"rank:{text[:60]} is no list of ranks.", "Write them like rank:0-7,12.")
        low, high = int(ends[0]), int(ends[1])
        if low > high:
            raise UserError(f"rank:{part[:40]} runs backwards.", f"Write rank:{high}-{low}.")
        found.append((low, high))
    return tuple(found)


def _host(text: str) -> str:
    if not text:
        raise UserError("node: names no node.", "Write it like node:b200-3 or node:b200-[1-4].")
    return text


def _is_host(host: str, wanted: str) -> bool:
    """Whether a line's host is among those wanted; a short name stands for its full one."""
    short = host.split(".")[0]
    if "*" in wanted or "?" in wanted:
        return fnmatchcase(host, wanted) or fnmatchcase(short, wanted)
    names = {wanted} if "[" not in wanted and "," not in wanted else set(hostlist.expand(wanted))
    return host in names or short in names or short in {n.split(".")[0] for n in names}
