"""Owns reading a Makefile: variables, targets and the shell of their recipes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from gpt_tune.lint.shell.script import Script

_VARIABLE = re.compile(r"(?:export[ \t]+)?([A-Za-z_][\w.-]*)[ \t]*(\?=|::?=|\+=|=)[ \t]*(.*)")
_TARGET = re.compile(r"([^\s#:=][^:=#\n]*?)[ \t]*::?(?!=)[ \t]*([^=\n]*)$")
_REFERENCE = re.compile(r"\$[({]([A-Za-z_][\w.-]*)[)}]")


@dataclass(slots=True)
class Target:
    """One target with its recipe as shell text. spaced: lines of the recipe that start with blanks, not a tab."""

    names: tuple[str, ...]
    needs: tuple[str, ...]
    line: int
    recipe: list[str] = field(default_factory=list)
    recipe_line: int = 0
    spaced: list[int] = field(default_factory=list)


class Makefile:
    """A Makefile and what was read from it."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def variables(self) -> dict[str, str]:
        known: dict[str, str] = {}
        for line in self.text.splitlines():
            match = None if line.startswith("\t") else _VARIABLE.match(line)
            if match is not None and match.group(2) != "+=":
                known.setdefault(match.group(1), match.group(3).split(" #")[0].strip())
        return {
            name: _REFERENCE.sub(lambda m: known.get(m.group(1), m.group()), v) for name, v in known.items()
        }

    @cached_property
    def targets(self) -> list[Target]:
        found: list[Target] = []
        current: Target | None = None
        continued = False
        for number, line in enumerate(self.text.splitlines(), 1):
            if line.startswith("\t"):
                if current is not None:
                    self._add(current, line[1:], number)
            elif continued and current is not None and current.recipe:
                self._add(current, line, number)
            elif not line.strip() or line.lstrip().startswith("#"):
                if current is not None and current.recipe:
                    self._add(current, "", number)
            elif line[0] == " " and current is not None and not _VARIABLE.match(line.lstrip()):
                current.spaced.append(number)
            else:
                match = None if _VARIABLE.match(line) else _TARGET.match(line)
                current = None
                if match is not None:
                    current = Target(tuple(match.group(1).split()), tuple(match.group(2).split()), number)
                    found.append(current)
            continued = line.endswith("\\")
        return found

    @staticmethod
    def _add(target: Target, line: str, number: int) -> None:
        target.recipe_line = target.recipe_line or number
        # Lines of other kinds in between keep their place, so that numbers stay right.
        missing = number - target.recipe_line - len(target.recipe)
        target.recipe += [""] * missing + [line]

    @cached_property
    def scripts(self) -> list[Script]:
        return [self.script_of(t) for t in self.targets if t.recipe]

    def script_of(self, target: Target) -> Script:
        """A recipe as the shell sees it, with Make's variables as shell variables of known value."""
        lines: list[str] = []
        continued = False
        for line in target.recipe:
            text = line if continued else re.sub(r"^[ \t]*[@+-]+", "", line)
            continued = line.endswith("\\")
            lines.append(_REFERENCE.sub(r"${\1}", text).replace("$$", "$"))
        return Script("\n".join(lines), target.recipe_line, 0, False, self.variables)
