"""Owns what a rule is and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gpt_tune.lint.documents import Document
    from gpt_tune.lint.project import Project

# error: it fails, hangs or records something wrong. warning: it is likely to. info: advice and style.
Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Edit:
    """A safe change of a file's text: characters start to end become `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule's check found. fix and severity: "" and None take the rule's own."""

    line: int
    message: str
    fix: str = ""
    severity: Severity | None = None
    edits: tuple[Edit, ...] = ()


Check = Callable[["Document", "Project"], Iterable[Hit]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that lint looks for. kinds: of documents it reads. pairs: it compares files, so a README beside
    a script is read for it even when only the script was named.
    """

    id: str
    severity: Severity
    kinds: tuple[str, ...]
    check: Check = field(repr=False)
    why: str
    fix: str
    source: str
    pairs: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of one file, in words."""

    file: str
    line: int
    rule: str
    severity: Severity
    message: str
    fix: str
    why: str
    source: str
    edits: tuple[Edit, ...] = field(default=(), repr=False)

    @property
    def fixable(self) -> bool:
        """Whether `--fix` can mend it."""
        return bool(self.edits)
