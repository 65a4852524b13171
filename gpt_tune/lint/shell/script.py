"""Owns one shell script as rules see it: commands, settings, values, scheduler directives, comments, flags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from gpt_tune.lint.shell import reader
from gpt_tune.lint.shell.settings import Setting, settings_of
from gpt_tune.lint.shell.tree import Command, Comment, Tree, Word
from gpt_tune.lint.shell.values import Values

_DIRECTIVE = re.compile(r"#SBATCH\b[ \t]*(.*)")
_OPTION = re.compile(r"(--[A-Za-z][A-Za-z0-9_-]*|-[A-Za-z])(?:=|[ \t]*)(.*)", re.DOTALL)
_LAUNCHERS = frozenset(
    {"srun", "mpirun", "mpiexec", "env", "time", "exec", "nohup", "sudo", "timeout", "numactl"}
)
_SHELLS = frozenset({"bash", "sh"})
# Blocks of scripts inside strings are numbered far from those of the file.
_APART = 1_000_000_000_000


@dataclass(frozen=True, slots=True)
class Directive:
    """One option of a `#SBATCH` line. name: without dashes ("p" for -p). start: offset of the line."""

    name: str
    value: str
    line: int
    start: int
    short: bool


class Script:
    """A shell text and what was read from it. whole: it is a file of its own, not a piece of one."""

    def __init__(
        self,
        text: str,
        line: int = 1,
        offset: int = 0,
        whole: bool = True,
        seeds: dict[str, str] | None = None,
    ) -> None:
        # Carriage returns would become part of words; blanks keep every offset.
        self.text = text.replace("\\\r\n", " \\\n").replace("\r\n", " \n") if "\r" in text else text
        self.line = line
        self.offset = offset
        self.whole = whole
        self._seeds = seeds or {}

    @cached_property
    def tree(self) -> Tree:
        return reader.read(self.text, self.line, self.offset)

    @cached_property
    def commands(self) -> list[Command]:
        """Every command, those inside `bash -c "..."` too."""
        found: list[Command] = []
        for command in self.tree.commands:
            inner = _shell_string(command)
            if inner is not None:
                inside = reader.Reader(_source_of(inner), inner.line, inner.start, command.blocks)
                inside.numbers = _APART * (len(found) + 1)
                found += inside.read().commands
            found.append(command)
        return found

    @property
    def comments(self) -> list[Comment]:
        return self.tree.comments

    @cached_property
    def settings(self) -> list[Setting]:
        return settings_of(self.commands)

    @cached_property
    def values(self) -> Values:
        return self.values_with({})

    def values_with(self, overrides: Mapping[str, str]) -> Values:
        """What things amount to when the caller sets these variables."""
        values = Values(self.settings, {**self._seeds, **_scheduler_seeds(self.directives)}, overrides)
        values.learn_branches(self.commands)
        return values

    @cached_property
    def directives(self) -> list[Directive]:
        """The `#SBATCH` options of the script, wherever they stand."""
        found: list[Directive] = []
        starts = _line_starts(self.text)
        for comment in self.comments:
            match = _DIRECTIVE.match(f"#{comment.text}")
            if match is None or not comment.alone:
                continue
            rest = re.split(r"\s#", match.group(1))[0].strip()
            start = self.offset + starts[comment.line - self.line]
            found += [Directive(n, v, comment.line, start, s) for n, v, s in split_options(rest)]
        return found

    @cached_property
    def first_command_line(self) -> int:
        """The line of the first command, behind which sbatch reads no directives."""
        return min((c.line for c in self.tree.commands), default=self.line + self.text.count("\n") + 1)

    def directive(self, *names: str) -> Directive | None:
        """The last directive of one of these names."""
        return next((d for d in reversed(self.directives) if d.name in names), None)

    @property
    def is_batch(self) -> bool:
        return bool(self.directives)

    def calls(self, *names: str) -> Iterator[Command]:
        """Commands of one of these names."""
        return (c for c in self.commands if c.name in names)


def words_of(command: Command) -> Iterator[Word]:
    """Every word of a command: arguments, values, items, targets."""
    yield from command.words
    for assignment in command.assignments:
        if assignment.value is not None:
            yield assignment.value
        yield from assignment.items or ()
    for redirect in command.redirects:
        if redirect.target is not None:
            yield redirect.target


def split_options(text: str) -> Iterator[tuple[str, str, bool]]:
    """`--a=1 -b 2 --c` as (name, value, short)."""
    pending: str | None = None
    for piece in re.findall(r"(?:\"[^\"]*\"|'[^']*'|\S)+", text):
        if pending is not None:
            if not re.match(r"-[A-Za-z-]", piece):
                yield pending.lstrip("-"), piece.strip("\"'"), not pending.startswith("--")
                pending = None
                continue
            yield pending.lstrip("-"), "", not pending.startswith("--")
            pending = None
        match = _OPTION.fullmatch(piece)
        if match is None:
            continue
        if match.group(2) or "=" in piece:
            yield match.group(1).lstrip("-"), match.group(2).strip("\"'"), not match.group(1).startswith("--")
        else:
            pending = match.group(1)
    if pending is not None:
        yield pending.lstrip("-"), "", not pending.startswith("--")


def launched(command: Command) -> tuple[Word, ...]:
    """The words of what a command finally starts: behind `srun ...`, `env A=1`, `time`."""
    words = command.words
    while words and (words[0].literal or "").rsplit("/", 1)[-1] in _LAUNCHERS:
        at = 1
        while at < len(words) and (
            (words[at].literal or words[at].leading).startswith("-") or "=" in words[at].source
        ):
            at += 1
        words = words[at:]
    return words


def _shell_string(command: Command) -> Word | None:
    """The script inside `bash -c "..."`, also behind srun."""
    names = [(w.literal or "").rsplit("/", 1)[-1] for w in command.words]
    for i, name in enumerate(names[:-2]):
        if name in _SHELLS and re.fullmatch(r"-[a-z]*c", names[i + 1]):
            return command.words[i + 2]
    return None


def _source_of(word: Word) -> str:
    """The text the inner shell reads; what the outer one fills in stays as `${NAME}`."""
    pieces: list[str] = []
    for part in word.parts:
        if part.kind == "text":
            pieces.append(part.text)
        elif part.kind == "variable":
            pieces.append(f"${{{part.text}{part.operator if part.operator.startswith('[') else ''}}}")
        elif part.kind == "arithmetic":
            pieces.append("0")
    return "".join(pieces)


def _line_starts(text: str) -> list[int]:
    starts = [0]
    starts += [m.end() for m in re.finditer(r"\n", text)]
    return starts


def _scheduler_seeds(directives: list[Directive]) -> dict[str, str]:
    """Variables that Slurm will set, as far as the directives fix them."""
    seeds: dict[str, str] = {}
    for directive in directives:
        if directive.name in ("nodes", "N") and directive.value.isdigit():
            for name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"):
                seeds[name] = directive.value
        if directive.name == "ntasks-per-node" and directive.value.isdigit():
            seeds["SLURM_NTASKS_PER_NODE"] = directive.value
        if directive.name in ("gpus-per-node", "gres"):
            match = re.search(r"(?:^|:)(\d+)$", directive.value)
            if match is not None:
                seeds["SLURM_GPUS_ON_NODE"] = seeds["SLURM_GPUS_PER_NODE"] = match.group(1)
    return seeds
