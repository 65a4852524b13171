"""Owns reading requirements: what `pip install` is given, in a file or on a command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from gpt_tune.lint.shell.script import Script
from gpt_tune.lint.shell.tree import Command, Word

_REQUIREMENT = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?[ \t]*((?:[<>=!~]=?=?[^;#\s,]+[ \t]*,?[ \t]*)*)(.*)"
)
_SPECIFIER = re.compile(r"(===|==|~=|!=|>=|<=|>|<)[ \t]*([^,\s]+)")
_WITH_VALUE = frozenset(
    {
        "-r",
        "--requirement",
        "-c",
        "--constraint",
        "-i",
        "--index-url",
        "--extra-index-url",
        "-f",
        "--find-links",
    }
    | {"-t", "--target", "--prefix", "--platform", "--python-version", "-e", "--editable", "--python", "-p"}
    | {"--progress-bar", "--timeout", "--retries", "--trusted-host", "--root", "--src", "--cache-dir", "-C"}
    | {"--upgrade-strategy", "--no-binary", "--only-binary", "--global-option", "--config-settings", "--log"}
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement. specifiers: (operator, version). url: it is fetched from an address instead."""

    name: str
    specifiers: tuple[tuple[str, str], ...]
    line: int
    source: str
    url: bool = False

    @property
    def pinned(self) -> bool:
        return any(op in ("==", "===") and "*" not in v for op, v in self.specifiers)

    @property
    def bounded(self) -> bool:
        """Whether new releases cannot reach it."""
        return any(op in ("==", "===", "~=", "<", "<=") for op, _ in self.specifiers)


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse(text: str, line: int) -> Requirement | None:
    """One requirement, or None when it is an option, a path or something else."""
    bare = re.split(r"(?:^|\s)#", text.strip().strip("\"'"))[0].strip()
    if not bare or bare.startswith(("-", ".", "/", "$")) or bare.endswith((".whl", ".txt", ".tar.gz")):
        return None
    if re.match(r"[a-z+]+://|git\+", bare):
        named = re.search(r"#egg=([\w.-]+)", text)
        return Requirement(normal(named.group(1)) if named else "", (), line, bare, url=True)
    match = _REQUIREMENT.match(bare)
    if match is None:
        return None
    rest = match.group(3).strip()
    if rest.startswith("@"):
        return Requirement(normal(match.group(1)), (), line, bare, url=True)
    specifiers = tuple(_SPECIFIER.findall(match.group(2)))
    return Requirement(normal(match.group(1)), specifiers, line, bare)


def of_file(text: str) -> list[Requirement]:
    """The requirements of a requirements file."""
    found = (parse(x, i) for i, x in enumerate(text.splitlines(), 1) if not x.lstrip().startswith("#"))
    return [r for r in found if r is not None]


def installs(command: Command) -> bool:
    """Whether a command is `pip install`, in any of its spellings."""
    return _arguments(command) is not None


def _arguments(command: Command) -> tuple[Word, ...] | None:
    words = command.words
    texts = [(w.literal or "").rsplit("/", 1)[-1] for w in words]
    for i, text in enumerate(texts[:8]):
        if re.fullmatch(r"pip[0-9.]*", text) and "install" in texts[i + 1 : i + 4]:
            at = texts.index("install", i)
            return words[at + 1 :]
    return None


def of_command(command: Command, script: Script) -> Iterator[Requirement]:
    """The requirements of a `pip install` command."""
    arguments = _arguments(command)
    skip = False
    for word in arguments or ():
        text = script.values.expand(word)
        if skip:
            skip = False
            continue
        if text in _WITH_VALUE:
            skip = True
            continue
        for piece in text.split() if not any(p.quote for p in word.parts) else [text]:
            requirement = parse(piece, word.line)
            if requirement is not None:
                yield requirement


def files_of(command: Command) -> list[str]:
    """The files that a `pip install` reads requirements from."""
    arguments = _arguments(command) or ()
    found: list[str] = []
    for option, value in pairwise(arguments):
        if option.literal in ("-r", "--requirement") and value.literal:
            found.append(value.literal)
    return found
