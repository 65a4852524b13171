"""Owns one file as rules see it: its text, and what its kind's reader made of it."""

from __future__ import annotations

import ast
import json
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from gpt_tune.lint import kinds
from gpt_tune.lint.flags import Flags
from gpt_tune.lint.readers import requirements
from gpt_tune.lint.readers.docker import Dockerfile
from gpt_tune.lint.readers.make import Makefile
from gpt_tune.lint.readers.markdown import Markdown
from gpt_tune.lint.shell.script import Script, words_of
from gpt_tune.lint.shell.settings import Setting, export_list
from gpt_tune.lint.shell.values import Values
from gpt_tune.lint.walk import Source

_FED_TO_SHELL = frozenset({"sbatch", "bash", "sh", "srun"})


class Document:
    """One file. asked: the user wants findings about it; others are read because they say something about those."""

    def __init__(self, source: Source, asked: bool) -> None:
        self.path: Path = source.path
        self.shown = source.shown
        self.kind = source.kind
        self.text = source.text
        self.asked = asked

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def rendered(self) -> bool:
        """Whether gpt-tune wrote this file for one run: what its owner chose is then not to be found fault with."""
        return "needs no gpt-tune" in self.text[:4000]

    @cached_property
    def folder(self) -> Path:
        return self.path.resolve().parent

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(m.end() for m in re.finditer("\n", self.text))]

    def offset(self, line: int) -> int:
        """Where a line starts in the text."""
        return self._starts[min(max(line, 1), len(self._starts)) - 1]

    def line_at(self, offset: int) -> int:
        return bisect_right(self._starts, offset)

    # -- by kind ---------------------------------------------------------------------------------------------

    @cached_property
    def script(self) -> Script:
        """The file as one shell script; empty for other kinds."""
        return Script(self.text if self.kind == kinds.SHELL else "")

    @cached_property
    def dockerfile(self) -> Dockerfile:
        return Dockerfile(self.text if self.kind == kinds.DOCKER else "")

    @cached_property
    def makefile(self) -> Makefile:
        return Makefile(self.text if self.kind == kinds.MAKE else "")

    @cached_property
    def markdown(self) -> Markdown:
        return Markdown(self.text if self.kind == kinds.MARKDOWN else "")

    @cached_property
    def requirements(self) -> list[requirements.Requirement]:
        return requirements.of_file(self.text) if self.kind == kinds.REQUIREMENTS else []

    @cached_property
    def python(self) -> ast.Module | None:
        """The syntax tree, or None for other kinds and for what Python does not parse."""
        if self.kind != kinds.PYTHON:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    @cached_property
    def data(self) -> Any:
        """The JSON value, or None when it is broken or another kind."""
        if self.kind != kinds.DEEPSPEED:
            return None
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    # -- shell of every kind ---------------------------------------------------------------------------------

    @cached_property
    def scripts(self) -> list[Script]:
        """All shell in the file: itself, RUN instructions, recipes, code blocks, and here-documents that are run."""
        if self.kind == kinds.SHELL:
            return [self.script, *_embedded(self.script)]
        if self.kind == kinds.DOCKER:
            return self.dockerfile.scripts
        if self.kind == kinds.MAKE:
            return self.makefile.scripts
        return self.markdown.scripts if self.kind == kinds.MARKDOWN else []

    @cached_property
    def settings(self) -> list[Setting]:
        """Every variable that the file sets: in shell, in ENV, and in `#SBATCH --export`."""
        found = [s for script in self.scripts for s in script.settings]
        found += self.dockerfile.settings
        for script in self.scripts:
            for directive in script.directives:
                if directive.name == "export":
                    found += export_list(directive.value, directive.line, directive.start)
        return found

    @cached_property
    def used_names(self) -> frozenset[str]:
        """Variables that the file itself does something with, other than showing them or giving them a default."""
        found: set[str] = set()
        for script in self.scripts:
            for command in script.commands:
                if command.name in ("echo", "printf", "unset", ":"):
                    continue
                own = {id(a.value): a.name for a in command.assignments if a.value is not None}
                for word in words_of(command):
                    found.update(n for n in word.names if own.get(id(word)) != n)
                for redirect in command.redirects:
                    if redirect.heredoc is not None:
                        found.update(p.text for p in redirect.heredoc.parts if p.kind == "variable")
        return frozenset(found)

    @cached_property
    def values_of(self) -> dict[int, Values]:
        """The values of the script each setting stands in, by the setting's identity."""
        return {id(s): script.values for script in self.scripts for s in script.settings}

    @cached_property
    def flags(self) -> Flags:
        return Flags(self.script)

    def batch_scripts(self) -> Iterator[Script]:
        """The scripts of this file that are given to sbatch."""
        for script in self.scripts:
            if script.is_batch or (script.whole and self.path.suffix in (".sbatch", ".slurm")):
                yield script


def _embedded(script: Script) -> Iterator[Script]:
    """Here-documents that are scripts: fed to sbatch or a shell, or starting with a shebang."""
    for command in script.tree.commands:
        for redirect in command.redirects:
            heredoc = redirect.heredoc
            if heredoc is None or not heredoc.text:
                continue
            if command.name in _FED_TO_SHELL or re.match(r"#!.*\bsh\b", heredoc.text):
                yield Script(heredoc.text, heredoc.line, heredoc.start, whole=False)
