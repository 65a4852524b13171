"""Owns the `--flag value` pairs of a script, wherever they are gathered: arguments, arrays, strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from gpt_tune.lint.shell.script import Script
from gpt_tune.lint.shell.tree import Block, Command, Part, Word
from gpt_tune.lint.shell.values import Values

_FLAG = re.compile(r"--[A-Za-z][A-Za-z0-9_-]*")
_SPACE = re.compile(r"(\s+)")
_SOME_FLAG = re.compile(r"(?:^|\s)--?[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. name: without dashes, `_` as `-`. owner: the variable it is kept in, or the command's name."""

    name: str
    values: tuple[Word, ...]
    line: int
    blocks: tuple[Block, ...]
    owner: str
    spelled: str
    # Behind && or ||: whether it is passed depends on a command.
    maybe: bool = False

    @property
    def value(self) -> Word | None:
        return self.values[0] if self.values else None


class Flags:
    """All flags of a script."""

    def __init__(self, script: Script, values: Values | None = None) -> None:
        self.script = script
        self.values = values or script.values

    def given(self, overrides: Mapping[str, str]) -> Flags:
        """The flags of a run whose caller sets these variables."""
        other = Flags(self.script, self.script.values_with(overrides))
        other.__dict__.update({k: v for k, v in self.__dict__.items() if k in ("all", "by_name")})
        return other

    @cached_property
    def all(self) -> list[Flag]:
        found: list[Flag] = []
        for command in self.script.commands:
            found += _of_command(command)
        return found

    @cached_property
    def by_name(self) -> dict[str, list[Flag]]:
        table: dict[str, list[Flag]] = {}
        for flag in self.all:
            table.setdefault(flag.name, []).append(flag)
        return table

    def named(self, *names: str) -> list[Flag]:
        """Every place where one of these flags stands."""
        return [f for n in names for f in self.by_name.get(n, [])]

    def has(self, *names: str) -> bool:
        return any(n in self.by_name for n in names)

    def live(self, *names: str) -> list[Flag]:
        """Those that a run with defaults passes, as far as is known."""
        return [f for f in self.named(*names) if not self.values.dead(f.blocks)]

    def text(self, *names: str) -> str | None:
        """The value that every live occurrence has, or None."""
        texts = {self.values.text(f.value) for f in self.live(*names)}
        return texts.pop() if len(texts) == 1 else None

    def number(self, *names: str) -> int | None:
        text = self.text(*names)
        return int(text) if text is not None and re.fullmatch(r"[0-9]{1,15}", text.strip()) else None

    def line(self, *names: str) -> int:
        """Where the first of them stands."""
        return min((f.line for f in self.named(*names)), default=1)


def _of_command(command: Command) -> Iterator[Flag]:
    name = command.name
    if name not in ("echo", "printf", "["):
        yield from _of_words(command.words[1:] if command.words else (), command, name)
    for assignment in command.assignments:
        if assignment.items is not None:
            yield from _of_words(assignment.items, command, assignment.name)
        elif assignment.value is not None:
            yield from _of_words((assignment.value,), command, assignment.name)


def _of_words(words: Iterable[Word], command: Command, owner: str) -> Iterator[Flag]:
    tokens = [t for w in words for t in split(w)]
    maybe = command.before in ("&&", "||")
    current: tuple[str, str, int] | None = None
    values: list[Word] = []
    for token in tokens:
        match = _FLAG.match(token.leading)
        if match is None:
            if current is not None:
                values.append(token)
            continue
        if current is not None:
            yield Flag(current[0], tuple(values), current[2], command.blocks, owner, current[1], maybe)
        spelled = match.group()
        current, values = (spelled[2:].replace("_", "-"), spelled, token.line), []
        if token.leading[len(spelled) :].startswith("="):
            values = [_behind(token, len(spelled) + 1)]
    if current is not None:
        yield Flag(current[0], tuple(values), current[2], command.blocks, owner, current[1], maybe)


def _behind(word: Word, count: int) -> Word:
    """The word without its first characters, which are plain text."""
    parts: list[Part] = []
    for part in word.parts:
        if count and part.kind == "text":
            taken = min(count, len(part.text))
            count -= taken
            if part.text[taken:]:
                parts.append(Part("text", part.text[taken:], part.quote, part.line))
        else:
            parts.append(part)
    return Word(tuple(parts), word.source, word.line, word.start, word.end)


def split(word: Word) -> list[Word]:
    """A word that holds several arguments in quotes, as those arguments."""
    quoted = [p.text for p in word.parts if p.kind == "text" and p.quote in ('"', "'")]
    # Without a flag in it, a quoted text with spaces is one value, such as a path.
    if not any(_SPACE.search(t) for t in quoted) or not any(_SOME_FLAG.search(t) for t in quoted):
        return [word]
    pieces: list[Word] = []
    parts: list[Part] = []

    def close() -> None:
        if parts:
            source = "".join(p.text for p in parts)
            pieces.append(Word(tuple(parts), source, parts[0].line, word.start, word.end))
            parts.clear()

    for part in word.parts:
        if part.kind != "text":
            parts.append(part)
            continue
        line = part.line
        for chunk in _SPACE.split(part.text):
            if chunk.isspace():
                close()
            elif chunk:
                parts.append(Part("text", chunk, part.quote, line))
            line += chunk.count("\n")
    close()
    return pieces
