"""Owns comments that switch rules off: `gpt-tune: ignore RULE` for a line, or for a file at its head."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gpt_tune.lint import kinds
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Finding

_MARK = re.compile(r"gpt-tune:[ \t]*ignore(-file)?\b[ \t:=]*([\w, \t-]*)")
_COMMENT_LINE = re.compile(r"^\s*(?:#|//|<!--|--|;|\")")
EVERYTHING = "*"


@dataclass(slots=True)
class Ignored:
    """Which rules are off where. named: every rule name that a comment gave, with its line."""

    everywhere: set[str] = field(default_factory=set)
    by_line: dict[int, set[str]] = field(default_factory=dict)
    named: list[tuple[int, str]] = field(default_factory=list)

    def covers(self, finding: Finding) -> bool:
        off = self.everywhere | self.by_line.get(finding.line, set())
        return EVERYTHING in off or finding.rule in off


def ignored(document: Document) -> Ignored:
    """The ignore comments of a file."""
    found = Ignored()
    if "gpt-tune" not in document.text:
        return found
    spans = _spans(document)
    head = _head_end(document)
    for number, line in enumerate(document.lines, 1):
        match = _MARK.search(line)
        if match is None:
            continue
        rules = {r for r in re.split(r"[,\s]+", match.group(2).split("--")[0]) if r} or {EVERYTHING}
        found.named += [(number, r) for r in sorted(rules - {EVERYTHING})]
        alone = bool(_COMMENT_LINE.match(line))
        if match.group(1) or (alone and number <= head):
            found.everywhere |= rules
            continue
        target = _next_code(document, number) if alone else number
        for covered in (target, *spans.get(target, ())):
            found.by_line.setdefault(covered, set()).update(rules)
    return found


def _head_end(document: Document) -> int:
    """The last line of the comments that a file starts with, when something separates them from the code."""
    last = 0
    for number, line in enumerate(document.lines, 1):
        if line.strip() and not _COMMENT_LINE.match(line):
            # A comment directly above the first line of code is about that line.
            return last if number > last + 1 else _block_start(document, last)
        if line.strip():
            last = number
    return last


def _block_start(document: Document, last: int) -> int:
    """The last head line that is not a plain comment directly above code: shebang and directives stay head."""
    while last > 0 and _MARK.search(document.lines[last - 1]):
        last -= 1
    return last


def _next_code(document: Document, number: int) -> int:
    for following in range(number + 1, len(document.lines) + 1):
        line = document.lines[following - 1]
        if line.strip() and not _COMMENT_LINE.match(line):
            return following
        if re.match(r"\s*#SBATCH", line):
            return following
    return number


def _spans(document: Document) -> dict[int, range]:
    """Lines of each command that goes over several, by any of its lines: a comment covers the whole command."""
    found: dict[int, range] = {}
    if document.kind not in (kinds.SHELL, kinds.DOCKER, kinds.MAKE):
        return found
    for script in document.scripts:
        for command in script.tree.commands:
            if command.end_line > command.line:
                lines = range(command.line, command.end_line + 1)
                for line in lines:
                    found.setdefault(line, lines)
    return found
