"""Owns every place where a script gives a variable a value, and how: assigned, exported, defaulted, passed on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpt_tune.lint.shell.tree import Block, Command, Part, Word

How = Literal["assign", "export", "default", "prefix", "option"]
_DEFAULTS = frozenset({":-", "-", ":=", "="})
_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(=?)(.*)", re.DOTALL)
_MENTION = re.compile(
    r"(?<![\w$?&{-])((?:NCCL|FI|OFI_NCCL|TORCH_NCCL|RDMAV|PYTORCH|CUDA|UCX|OMPI_MCA)_[A-Za-z0-9_]+)=([^\s;\"',]*)"
)
# Commands that only talk about what stands in their arguments.
_SAYS = frozenset({"echo", "printf", "grep", "egrep", "sed", "awk", "[", "[[", "test", "cat", "env", "unset"})
# Options whose value is NAME=value, by command.
_PAIR_OPTIONS = {
    "mpirun": ("-x",),
    "mpiexec": ("-x", "-genv", "-env"),
    "docker": ("-e", "--env"),
    "podman": ("-e", "--env"),
    "apptainer": ("--env",),
    "singularity": ("--env",),
    "enroot": ("--env", "-e"),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One value given to a name.

    word: the value as written, None for a bare `export NAME`. items: of an array. text: the value of an option.
    overridable: the caller's own value wins. start: offset of the name in the file.
    """

    name: str
    how: How
    line: int
    start: int
    blocks: tuple[Block, ...]
    word: Word | None = None
    items: tuple[Word, ...] | None = None
    text: str | None = None
    append: bool = False
    overridable: bool = False
    exported: bool = False
    conditional: bool = False
    end: int = 0

    @property
    def default(self) -> Word | None:
        """The value it has when nobody overrides it."""
        if self.overridable and self.word is not None:
            for part in self.word.parts:
                if part.kind == "variable" and part.operator in _DEFAULTS and len(self.word.parts) == 1:
                    return part.argument
        return self.word


def settings_of(commands: list[Command]) -> list[Setting]:
    """Every setting of a script, in order."""
    found: list[Setting] = []
    seen: set[tuple[str, int]] = set()
    for command in commands:
        direct = [*_assignments(command), *_defaults(command)]
        seen.update((s.name, s.line) for s in direct)
        # The same text is read twice where a string is a script: the reading as a script counts.
        passed = [s for s in _options(command) if (s.name, s.line) not in seen]
        seen.update((s.name, s.line) for s in passed)
        found += direct + passed
    exported = {s.name for s in found if s.how == "export"}
    if any(_exports_all(c) for c in commands):
        exported |= {s.name for s in found}
    return [_with_export(s, exported) for s in found]


def _with_export(setting: Setting, exported: set[str]) -> Setting:
    if setting.how in ("prefix", "option", "export") or setting.name not in exported:
        return setting
    values = {name: getattr(setting, name) for name in Setting.__slots__}
    return Setting(**{**values, "exported": True})


def _exports_all(command: Command) -> bool:
    if command.name != "set":
        return False
    given = [w.literal or "" for w in command.words[1:]]
    return "allexport" in given or any(re.fullmatch(r"-[a-zA-Z]*a[a-zA-Z]*", g) for g in given)


def _assignments(command: Command) -> Iterator[Setting]:
    name = command.words[0].literal if command.words else None
    flags = [w.literal or "" for w in command.words[1:]]
    marks_export = name == "export" or (
        name in ("declare", "typeset") and any(f.startswith("-") and "x" in f for f in flags)
    )
    declares = name in ("export", "declare", "typeset", "local", "readonly")
    how: How = "export" if marks_export else "assign"
    if command.words and not declares:
        how = "prefix"
    for a in command.assignments:
        yield Setting(
            a.name, how, a.line, a.start, command.blocks, a.value, a.items, None, a.append,
            _overridable(a.name, a.value, command), how in ("export", "prefix"), command.conditional, a.end,
        )  # fmt: skip
    if marks_export:
        for word in command.words[1:]:
            if word.literal and re.fullmatch(r"[A-Za-z_]\w*", word.literal):
                yield Setting(word.literal, "export", word.line, word.start, command.blocks, exported=True)


def _overridable(name: str, value: Word | None, command: Command) -> bool:
    """Whether the caller's value survives: `${NAME:-x}`, a positional default, or a guard on NAME."""
    for part in value.parts if value is not None else ():
        # NAME=${NAME:-x}, NAME=${NAME:?}, PATH=x:$PATH and NAME=$1 all keep what the caller gives.
        if part.kind == "variable" and (part.text == name or part.text.isdigit()):
            return True
    guard = re.compile(rf"-[zv]\s+\"?\$?\{{?{re.escape(name)}\b|\$\{{{re.escape(name)}\+")
    if any(b.kind in ("if", "else") and guard.search(b.head) for b in command.blocks):
        return True
    return command.before in ("&&", "||")


def _defaults(command: Command) -> Iterator[Setting]:
    """`: ${NAME:=value}`, and any `${NAME:=value}` elsewhere."""
    for word in command.words:
        for part in word.parts:
            if part.kind == "variable" and part.operator in (":=", "=") and not part.text.isdigit():
                yield Setting(
                    part.text, "default", part.line, word.start, command.blocks, part.argument,
                    overridable=True, conditional=command.conditional, end=word.end,
                )  # fmt: skip


def _options(command: Command) -> Iterator[Setting]:
    """Values handed to another program: `--export=ALL,A=1`, `-x A=1`, `env A=1`."""
    name = command.name
    if name in ("sbatch", "srun", "salloc") or any(_is_export(w) for w in command.words):
        yield from _export_lists(command)
    if name == "env":
        for word in command.words[1:]:
            yield from _pair(word, command)
    takes = _PAIR_OPTIONS.get(name, ())
    for option, word in zip(command.words, command.words[1:]):
        if option.literal in takes:
            yield from _pair(word, command)
    if name not in _SAYS:
        yield from _mentions(command)


def _mentions(command: Command) -> Iterator[Setting]:
    """Library variables inside arguments and strings, which another command will set: "NCCL_ALGO=Ring"."""
    words = [*command.words[1:], *(w for a in command.assignments for w in a.items or ())]
    words += [a.value for a in command.assignments if a.value is not None]
    for word in words:
        if "=" not in word.source or "_" not in word.source or _is_export(word):
            continue
        for match in _MENTION.finditer(word.source):
            line = word.line + word.source.count("\n", 0, match.start())
            yield Setting(
                match.group(1), "option", line, word.start + match.start(), command.blocks,
                text=match.group(2), exported=True,
            )  # fmt: skip


def _is_export(word: Word) -> bool:
    return "--export=" in word.source


def _export_lists(command: Command) -> Iterator[Setting]:
    for i, word in enumerate(command.words):
        if word.literal == "--export" and i + 1 < len(command.words):
            yield from export_list(command.words[i + 1].source, word.line, word.start, command.blocks)
        elif _is_export(word):
            after = word.source.split("--export=", 1)[1]
            yield from export_list(after, word.line, word.start, command.blocks)


def export_list(source: str, line: int, start: int, blocks: tuple[Block, ...] = ()) -> Iterator[Setting]:
    """`ALL,A=1,B=2` as settings. A value ends at a comma, as sbatch reads it."""
    for piece in re.split(r"[,\s]", source.strip("\"'")):
        match = _PAIR.fullmatch(piece.strip("\"'"))
        if match is not None and match.group(2):
            yield Setting(
                match.group(1), "option", line, start, blocks, text=match.group(3).strip("\"'"), exported=True
            )


def _pair(word: Word, command: Command) -> Iterator[Setting]:
    match = _PAIR.fullmatch(word.source.strip("\"'"))
    if match is not None and match.group(2):
        text = match.group(3).strip("\"'")
        yield Setting(
            match.group(1), "option", word.line, word.start, command.blocks, text=text, exported=True
        )


def text_word(text: str, line: int) -> Word:
    """A word of plain text, for values that come from elsewhere."""
    return Word((Part("text", text, "", line),), text, line, 0, 0)
