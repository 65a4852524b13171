"""Owns what `gpt-tune` without a command does: the full screen, plain questions, or the defaults."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from gpt_tune.errors import UserError
from tui.cli.output import say


def cannot_draw(environ: Mapping[str, str]) -> bool:
    """Whether the terminal says that it can do no more than print line after line."""
    return environ.get("TERM", "") in ("", "dumb", "unknown")


def open_wizard(plain: bool, auto: bool, dry_run: bool, profile: str | None, as_json: bool) -> int:
    """Open the face that fits; the exit code."""
    if auto:
        from tui.plain.auto import run_auto

        return run_auto(profile, dry_run, as_json)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            "The wizard needs a terminal, and this is none.",
            "Use a command (`gpt-tune --help`), or `gpt-tune --auto` to take every default.",
        )
    if not plain and cannot_draw(os.environ):
        say("This terminal cannot show the full screen (TERM is dumb or not set): asking in plain text.")
        plain = True
    if plain:
        from tui.plain.flow import run_plain

        return run_plain(profile, dry_run)
    from tui.app import run_wizard

    return int(run_wizard(profile) or 0)
