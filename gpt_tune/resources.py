"""Owns where shipped data (`profiles/`, `templates/`) and the user's own folders are."""

from __future__ import annotations

import os
from pathlib import Path

from gpt_tune.errors import UserError

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """Folder of shipped data: `profiles` or `templates`, from a wheel or from a checkout.

    Raises UserError when the installation lacks it.
    """
    for candidate in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise UserError(f"The shipped folder {name!r} is missing.", "Reinstall gpt-tune.")


def config_dir() -> Path:
    """The user's profiles and settings: $XDG_CONFIG_HOME/gpt-tune."""
    return _xdg("XDG_CONFIG_HOME", ".config")


def state_dir() -> Path:
    """Ledger and state on this machine: $XDG_STATE_HOME/gpt-tune."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def _xdg(variable: str, fallback: str) -> Path:
    base = os.environ.get(variable, "")
    # The XDG specification says relative values are invalid and must be ignored.
    root = Path(base) if base.startswith("/") else Path.home() / fallback
    return root / "gpt-tune"
