"""Owns mending files: edits become new text, a diff to show, and one atomic write."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpt_tune.errors import UserError
from gpt_tune.lint.finding import Edit


@dataclass(frozen=True, slots=True)
class Fix:
    """One file before and after. path: where it really lies. shown: as the user named it."""

    path: Path
    shown: str
    before: str
    after: str
    rules: tuple[str, ...]

    @property
    def diff(self) -> str:
        """The change as a unified diff. Line ends that change show as such."""
        return "".join(
            _ended(x)
            for x in difflib.unified_diff(
                self.before.splitlines(keepends=True),
                self.after.splitlines(keepends=True),
                f"a/{self.shown.lstrip('/')}",
                f"b/{self.shown.lstrip('/')}",
            )
        )


def _ended(line: str) -> str:
    if line.endswith("\n"):
        return line
    return f"{line}\n\\ No newline at end of file\n"


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with the edits made; of two that overlap the first wins."""
    pieces: list[str] = []
    at = 0
    for edit in sorted(set(edits), key=lambda e: (e.start, e.end)):
        if edit.start < at or edit.end > len(text) or edit.end < edit.start:
            continue
        pieces += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*pieces, text[at:]])


def write(fix: Fix) -> None:
    """Put the new text in the file's place, whole or not at all. A link keeps pointing at its file.

    UserError when the file changed since it was read, or cannot be written.
    """
    path = fix.path.resolve()
    try:
        mode = path.stat().st_mode
        if path.read_bytes() != fix.before.encode("utf-8", "surrogateescape"):
            raise UserError(f"{fix.shown} changed while it was being checked.", "Run lint again.")
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise UserError(f"Cannot write {fix.shown}: {error.strerror}.", "Check its permissions.") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(fix.after.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode & 0o7777)
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise UserError(f"Cannot write {fix.shown}: {error.strerror}.", "Check the disk.") from error
