"""Owns reading a Dockerfile: instructions over continued lines, build arguments, variables, and the shell of RUN."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gpt_tune.lint.shell.script import Script
from gpt_tune.lint.shell.settings import Setting, text_word

_INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)(?:[ \t]+|\\?$)")
_HEREDOC = re.compile(r"<<-?[ \t]*[\"']?([A-Za-z_]\w*)[\"']?")
_RUN_OPTION = re.compile(r"(?:--[a-z]+(?:=\S+)?(?:\s|\\\n)+)+")
_PAIR = re.compile(r"([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?:[^\s\\]|\\.)*)", re.DOTALL)
_REFERENCE = re.compile(r"\$\{?([A-Za-z_]\w*)(?::-([^}]*))?\}?")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. text: all of its lines behind the name, continued lines and all. start: offset of text."""

    name: str
    text: str
    line: int
    start: int
    body: str = ""
    body_line: int = 0
    body_start: int = 0

    @property
    def flat(self) -> str:
        """Its text on one line, without comments."""
        lines = [x for x in self.text.split("\n") if not x.lstrip().startswith("#")]
        return " ".join(x.rstrip().removesuffix("\\").strip() for x in lines).strip()


class Dockerfile:
    """A Dockerfile and what was read from it."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def instructions(self) -> list[Instruction]:
        found: list[Instruction] = []
        lines = self.text.splitlines(keepends=True)
        at, offset = 0, 0
        while at < len(lines):
            first, first_offset, first_line = lines[at], offset, at + 1
            at, offset = at + 1, offset + len(lines[at])
            match = _INSTRUCTION.match(first)
            if match is None or first.lstrip().startswith("#"):
                continue
            taken = [first]
            while at < len(lines) and _continues(taken):
                taken.append(lines[at])
                at, offset = at + 1, offset + len(lines[at])
            heredoc = _HEREDOC.search(taken[-1]) if match.group(1).upper() in ("RUN", "COPY") else None
            body: list[str] = []
            body_line, body_start = at + 1, offset
            while heredoc is not None and at < len(lines):
                at, offset = at + 1, offset + len(lines[at])
                if lines[at - 1].strip() == heredoc.group(1):
                    break
                body.append(lines[at - 1])
            found.append(
                Instruction(
                    match.group(1).upper(), "".join(taken)[match.end() :], first_line, first_offset + match.end(),
                    "".join(body), body_line, body_start,
                )
            )  # fmt: skip
        return found

    def named(self, *names: str) -> Iterator[Instruction]:
        return (i for i in self.instructions if i.name in names)

    @cached_property
    def settings(self) -> list[Setting]:
        """ENV and ARG as settings: an ARG is overridable, an ENV is exported."""
        found: list[Setting] = []
        for instruction in self.named("ENV", "ARG"):
            pairs = [(m.group(1), m.group(2), m.start(), m.end()) for m in _PAIR.finditer(instruction.text)]
            if not pairs and instruction.name == "ENV":
                name, _, value = instruction.flat.partition(" ")
                pairs = [(name, value.strip(), 0, len(name))]
            for name, value, start, end in pairs:
                line = instruction.line + instruction.text.count("\n", 0, start)
                is_env = instruction.name == "ENV"
                found.append(
                    Setting(
                        name, "export" if is_env else "assign", line, instruction.start + start, (),
                        text_word(value.strip("\"'"), line), overridable=not is_env, exported=is_env,
                        end=instruction.start + end,
                    )
                )  # fmt: skip
        return found

    @cached_property
    def variables(self) -> dict[str, str]:
        """ARG and ENV values with references filled in."""
        known: dict[str, str] = {}
        for setting in self.settings:
            text = setting.word.source if setting.word else ""
            known[setting.name] = fill(text, known)
        return known

    @cached_property
    def bases(self) -> list[tuple[str, int]]:
        """Images behind FROM that are not stages of this file, with their lines."""
        found: list[tuple[str, int]] = []
        stages: set[str] = set()
        for instruction in self.named("FROM"):
            words = [w for w in instruction.flat.split() if not w.startswith("--")]
            if not words:
                continue
            image = fill(words[0], self.variables)
            if image.lower() not in stages:
                found.append((image, instruction.line))
            if len(words) >= 3 and words[1].lower() == "as":
                stages.add(words[2].lower())
        return found

    @cached_property
    def scripts(self) -> list[Script]:
        """The shell text of every RUN."""
        found: list[Script] = []
        for instruction in self.named("RUN"):
            if instruction.body:
                found.append(
                    Script(
                        instruction.body, instruction.body_line, instruction.body_start, False, self.variables
                    )
                )
                continue
            if instruction.text.lstrip().startswith("["):
                continue
            option = _RUN_OPTION.match(instruction.text)
            skip = option.end() if option else 0
            text = _without_comments(instruction.text[skip:])
            line = instruction.line + instruction.text.count("\n", 0, skip)
            found.append(Script(text, line, instruction.start + skip, False, self.variables))
        return found


def fill(text: str, known: dict[str, str]) -> str:
    """Text with `$NAME` and `${NAME:-x}` filled in where the name is known."""

    def value(match: re.Match[str]) -> str:
        return known.get(match.group(1)) or match.group(2) or match.group()

    return _REFERENCE.sub(value, text)


def _continues(taken: list[str]) -> bool:
    """Whether an instruction goes on: its last line that is no comment ends with a backslash."""
    last = taken[-1]
    if len(taken) > 1 and (last.lstrip().startswith("#") or not last.strip()):
        return True
    return last.rstrip().endswith("\\")


def _without_comments(text: str) -> str:
    """Comment lines inside a continued RUN as blank continued lines of the same length."""
    lines = text.split("\n")
    for i, line in enumerate(lines[1:], 1):
        if line.lstrip().startswith("#") and i < len(lines) - 1:
            lines[i] = " " * (len(line) - 1) + "\\"
    return "\n".join(lines)
