"""Owns reading a README: code fences, tables, links and sentences with their lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from gpt_tune.lint.shell.script import Script

_FENCE = re.compile(r"^([ \t>]*)(`{3,}|~{3,})[ \t]*([\w+-]*)[^`\n]*$")
_SHELL_WORDS = frozenset({"bash", "sh", "shell", "console", "zsh", "shell-session", "terminal"})
_PROMPT = re.compile(r"^([ \t]*)(?:\$|#|>)[ \t](?=\S)")
_SEPARATOR = re.compile(r"^[ \t]*\|?[ \t]*:?-{2,}:?[ \t]*(\|[ \t]*:?-{2,}:?[ \t]*)*\|?[ \t]*$")


@dataclass(frozen=True, slots=True)
class Fence:
    """A code block. line: of its first line of code. closed: whether its end was found."""

    language: str
    text: str
    line: int
    closed: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its header cells, and rows of cells with their lines."""

    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]

    def column(self, *words: str) -> int | None:
        """The first column whose title holds one of the words."""
        return next(
            (i for i, title in enumerate(self.header) if any(w in title.lower() for w in words)), None
        )


class Markdown:
    """A Markdown text and what was read from it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.splitlines()

    @cached_property
    def _parts(self) -> tuple[list[Fence], list[tuple[int, str]]]:
        """Code blocks, and the numbered lines outside them."""
        fences: list[Fence] = []
        prose: list[tuple[int, str]] = []
        opened: tuple[str, str, int, str] | None = None
        taken: list[str] = []
        for number, line in enumerate(self.lines, 1):
            match = _FENCE.match(line)
            if opened is None:
                if match is None:
                    prose.append((number, line))
                else:
                    opened, taken = (match.group(2), match.group(3).lower(), number + 1, match.group(1)), []
            elif match is not None and match.group(2).startswith(opened[0]) and not match.group(3):
                fences.append(Fence(opened[1], "\n".join(taken) + "\n", opened[2], True))
                opened = None
            else:
                taken.append(line.removeprefix(opened[3]))
        if opened is not None:
            fences.append(Fence(opened[1], "\n".join(taken) + "\n", opened[2], False))
        return fences, prose

    @property
    def fences(self) -> list[Fence]:
        return self._parts[0]

    @property
    def prose(self) -> list[tuple[int, str]]:
        return self._parts[1]

    @cached_property
    def scripts(self) -> list[Script]:
        """Shell code blocks, prompts taken off."""
        found: list[Script] = []
        for fence in self.fences:
            if fence.language in _SHELL_WORDS or (not fence.language and _looks_like_shell(fence.text)):
                lines = [
                    _PROMPT.sub(r"\1", x) if _PROMPT.match(x) and "$" in x[:6] else x
                    for x in fence.text.split("\n")
                ]
                found.append(Script("\n".join(lines), fence.line, 0, False))
        return found

    @cached_property
    def tables(self) -> list[Table]:
        found: list[Table] = []
        prose = self.prose
        for i, (_, line) in enumerate(prose[:-1]):
            if "|" not in line or not _SEPARATOR.match(prose[i + 1][1]) or "|" not in prose[i + 1][1]:
                continue
            rows: list[tuple[int, tuple[str, ...]]] = []
            for number, row in prose[i + 2 :]:
                if "|" not in row:
                    break
                rows.append((number, _cells(row)))
            found.append(Table(_cells(line), tuple(rows)))
        return found


def _cells(line: str) -> tuple[str, ...]:
    inner = re.sub(r"^\s*\||\|\s*$", "", line)
    return tuple(c.strip() for c in re.split(r"(?<!\\)\|", inner))


_COMMAND_START = re.compile(
    r"(?m)^[ \t]*(?:\$[ \t]+)?(?:sbatch|srun|git clone|docker|pip3? install|python3? |export [A-Z]|make |bash |cd |"
    r"enroot|torchrun)"
)


def _looks_like_shell(text: str) -> bool:
    return bool(_COMMAND_START.search(text))
