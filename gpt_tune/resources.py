"""Owns where shipped data (`profiles/`, `templates/`) and the user's own folders are."""

from __future__ import annotations

import os
from pathlib import Path

from gpt_tune.errors import UserError, shown

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """Folder of shipped data: `profiles` or `templates`, from a wheel or from a checkout.

    Raises UserError when the installation lacks it.
    """
    for candidate in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise UserError(f"The shipped folder {name!r} is missing.", "Reinstall gpt-tune.")


def checkout() -> Path | None:
    """The checkout that the program runs from, or None for an installed one."""
    root = _PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "scripts" / "setup.sh").is_file() else None


def install_words(extra: str, root: Path | None) -> str:
    """The command that adds an extra's packages to this very installation; root: its checkout, or None."""
    if root is None:
        return f"pip install 'gpt-tune[{extra}]'"
    return f"In {root}: .venv/bin/pip install '.[{extra}]'"


def config_dir() -> Path:
    """The user's profiles and settings: $XDG_CONFIG_HOME/gpt-tune."""
    return _xdg("XDG_CONFIG_HOME", ".config")


def state_dir() -> Path:
    """Ledger and state on this machine: $XDG_STATE_HOME/gpt-tune."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def existing(text: str | Path) -> Path | None:
    """The file or folder that a user's word names, or None: also for a word that no file can be called."""
    if not str(text):
        return None  # Path("") would be this folder
    try:
        path = Path(text).expanduser()
        path.stat()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, ~ of nobody, no right to look
        return None
    return path


def existing_file(text: str | Path) -> Path | None:
    """The file that a user's word names, or None."""
    path = existing(text)
    return path if path is not None and path.is_file() else None


def existing_dir(text: str | Path) -> Path | None:
    """The folder that a user's word names, or None."""
    path = existing(text)
    return path if path is not None and path.is_dir() else None


def path_of(text: str | Path) -> Path:
    """The path of a file to write, existing or not. UserError for a word that no file can be called."""
    path = Path(text)
    try:
        path = path.expanduser()
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{shown(str(text))} cannot be a path: {reason}.", "Give another one.") from error
    return path


def _xdg(variable: str, fallback: str) -> Path:
    base = os.environ.get(variable, "")
    # The XDG specification says relative values are invalid and must be ignored.
    root = Path(base) if base.startswith("/") else Path.home() / fallback
    folder = root / "gpt-tune"
    try:
        folder.lstat()
    except PermissionError as error:  # sudo without -H: the home is another user's
        raise UserError(
            f"You may not look into {root}, where your {variable.split('_')[1].lower()} files should be.",
            f"Set HOME to a folder of your own (with sudo: -H), or {variable}.",
        ) from error
    except OSError:  # not there yet, or no folder: whoever needs it says so
        pass
    return folder
