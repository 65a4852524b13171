"""Owns letting the user edit a text in an editor of their own: which one, a private file, what came of it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path, PurePosixPath

from gpt_tune.errors import UserError

FALLBACKS = ("nano", "vim", "vi")


def command() -> list[str]:
    """The editor's command line: $VISUAL, $EDITOR, or one that is here. UserError when there is none."""
    for variable in ("VISUAL", "EDITOR"):
        text = os.environ.get(variable, "").strip()
        if text:
            try:
                words = shlex.split(text)
            except ValueError as error:
                raise UserError(
                    f"${variable} is {text!r}, which is no command: {error}.", "Set it anew."
                ) from error
            if words and shutil.which(words[0]) is None:
                raise UserError(
                    f"${variable} names {words[0]!r}, and there is no such program.", "Set it anew."
                )
            return words
    found = next((name for name in FALLBACKS if shutil.which(name)), None)
    if found is None:
        raise UserError(
            f"No editor is set, and none of {', '.join(FALLBACKS)} is here.",
            "Set $EDITOR, for example to nano.",
        )
    return [found]


def edit(name: str, text: str, words: list[str]) -> str:
    """The text as the user left it. The terminal must be the editor's meanwhile.

    name: of the file, so that the editor knows what it is. UserError when the editor fails; nothing is changed then.
    """
    with tempfile.TemporaryDirectory(prefix="gpt-tune-edit-") as folder:  # mkdtemp makes it 0700
        path = Path(folder) / PurePosixPath(name).name
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        try:
            code = subprocess.run([*words, str(path)], check=False).returncode
        except OSError as error:
            raise UserError(
                f"{words[0]} cannot be started: {error.strerror}.", "Set $EDITOR anew."
            ) from error
        if code != 0:
            raise UserError(f"{words[0]} ended with code {code}: nothing was changed.", "")
        try:
            return path.read_bytes().decode("utf-8")
        except FileNotFoundError as error:
            raise UserError("The editor removed the file: nothing was changed.", "") from error
        except UnicodeDecodeError as error:
            raise UserError(
                "What was saved is not UTF-8 text: nothing was changed.", "Edit it again."
            ) from error
