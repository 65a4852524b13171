"""Owns taking log lines out of the screen: to the clipboard, into a file, into the user's pager."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpt_tune.errors import UserError

if TYPE_CHECKING:
    from textual.app import App

MOST_COPIED = 64_000  # characters: terminals and tmux refuse longer OSC 52 sequences


def clipboard_text(lines: Sequence[str]) -> tuple[str, bool]:
    """The lines as one text, and whether it had to be cut."""
    text = "\n".join(lines)
    return text[:MOST_COPIED], len(text) > MOST_COPIED


def free_name(folder: Path, name: str) -> Path:
    """A name in a folder that nothing has yet."""
    path = folder / name
    number = 1
    while path.exists():
        path = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
        number += 1
    return path


def save_lines(path: Path, lines: Sequence[str]) -> Path:
    """Write lines into a new file that only the user can read. UserError when it exists or cannot be made."""
    try:
        with open(
            path, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)
        ) as file:
            file.writelines(f"{line}\n" for line in lines)
    except FileExistsError as error:
        raise UserError(f"{path} exists already.", "Choose another name.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.", "Choose another place.") from error
    return path


def pager_command(path: str, wanted: str = "", line: int | None = None) -> list[str]:
    """$PAGER, else less or more, on a file. less begins at a line, else at a text searched for, else at the end."""
    try:
        chosen = shlex.split(os.environ.get("PAGER", "")) or ["less"]
    except ValueError:  # a quote that does not close
        chosen = ["less"]
    if shutil.which(chosen[0]) is None:
        chosen = ["more"]
    if shutil.which(chosen[0]) is None:
        raise UserError("No pager was found.", "Install less, or set PAGER to a program that shows files.")
    if Path(chosen[0]).name != "less":
        return [*chosen, path]
    # -i: in any case. A pattern of less is a regular expression, so the text is quoted for it.
    start = f"+{line}g" if line is not None else f"+/{_quoted(wanted)}" if wanted else "+G"
    return [*chosen, "-i", start, "--", path]


def _quoted(text: str) -> str:
    return "".join(f"\\{c}" if not (c.isalnum() or c in " _-") else c for c in text)


def show_in_pager(
    app: App[Any], path: str, held: Sequence[str], wanted: str = "", line: int | None = None
) -> None:
    """Give the terminal to a pager until it ends. A file that is not on this machine: the lines held here."""
    from textual.app import SuspendNotSupported

    with tempfile.TemporaryDirectory(prefix="gpt-tune-") as folder:
        if not Path(path).is_file():
            path = str(save_lines(Path(folder) / (Path(path).name or "log"), held))
            line = None  # of the file, not of these lines
        command = pager_command(path, wanted, line)
        try:
            with app.suspend():
                subprocess.run(command, check=False)
        except SuspendNotSupported as error:
            raise UserError(
                "A pager cannot be opened from here.", f"In a shell: {shlex.join(command)}"
            ) from error
        except OSError as error:
            raise UserError(
                f"{command[0]} cannot be started: {error.strerror}.", "Set PAGER to another one."
            ) from error
    app.refresh()
