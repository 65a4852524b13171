"""Owns what a shell script is made of: words with their parts, assignments, redirects, commands and blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PartKind = Literal["text", "variable", "command", "arithmetic"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word.

    text: the characters; the name of a variable; the source inside `$( )` or `$(( ))`.
    quote: the quotes it stands in, or "". operator and argument: `${name:-argument}`.
    """

    kind: PartKind
    text: str
    quote: str
    line: int
    operator: str = ""
    argument: Word | None = None


@dataclass(frozen=True, slots=True)
class Word:
    """One shell word. start and end: offsets in the file's text. source: as written."""

    parts: tuple[Part, ...]
    source: str
    line: int
    start: int
    end: int

    @property
    def literal(self) -> str | None:
        """Its text when nothing in it is expanded, else None."""
        if all(p.kind == "text" for p in self.parts):
            return "".join(p.text for p in self.parts)
        return None

    @property
    def leading(self) -> str:
        """Its text up to the first expansion."""
        taken: list[str] = []
        for part in self.parts:
            if part.kind != "text":
                break
            taken.append(part.text)
        return "".join(taken)

    @property
    def names(self) -> tuple[str, ...]:
        """Variables it expands, those inside defaults too."""
        found: list[str] = []
        for part in self.parts:
            if part.kind == "variable":
                found.append(part.text)
                found += part.argument.names if part.argument is not None else ()
        return tuple(found)


@dataclass(slots=True)
class Heredoc:
    """The lines behind `<<WORD`. Filled in when the reader reaches them. parts: with expansions, unless quoted."""

    delimiter: str
    quoted: bool
    strip_tabs: bool
    text: str = ""
    line: int = 0
    start: int = 0
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Redirect:
    """`> target` and its like. target is None for a here-document."""

    operator: str
    target: Word | None
    heredoc: Heredoc | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """`NAME=value`, `NAME+=value`, `NAME=(items)`."""

    name: str
    value: Word | None
    append: bool
    items: tuple[Word, ...] | None
    line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Block:
    """What a command stands in: if, else, case, for, while, function, group, subshell, substitution, string.

    number: unique in its script; the branches of one `if` or `case` share `family`.
    head: source of the condition, the function's name, or the loop's variable.
    """

    kind: str
    number: int
    family: int
    line: int
    head: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command. before and after: the operators around it ("", ";", "&", "|", "&&", "||").

    condition: it is what an if, while or until asks.
    """

    words: tuple[Word, ...]
    assignments: tuple[Assignment, ...]
    redirects: tuple[Redirect, ...]
    blocks: tuple[Block, ...]
    line: int
    end_line: int
    before: str = ""
    after: str = ""
    condition: bool = False

    @property
    def name(self) -> str:
        """The command's name without its folder, or "" when it is not fixed."""
        text = self.words[0].literal if self.words else None
        return text.rsplit("/", 1)[-1] if text else ""

    @property
    def conditional(self) -> bool:
        """Whether it may not run: inside a branch or function, or behind && and ||."""
        kinds = {"if", "else", "case", "function", "while"}
        return self.before in ("&&", "||") or any(b.kind in kinds for b in self.blocks)


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment, without its `#`. alone: nothing else stands on its line."""

    text: str
    line: int
    alone: bool


@dataclass(slots=True)
class Tree:
    """Everything read from one script, in the order of the file."""

    commands: list[Command] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    functions: dict[str, int] = field(default_factory=dict)
