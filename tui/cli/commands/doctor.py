"""Owns `gpt-tune doctor`: what this machine and the cluster are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpt_tune.errors import EXIT_DONE, EXIT_FINDING
from tui.cli.options import json_option
from tui.cli.output import emit_json, show, show_table

if TYPE_CHECKING:
    from gpt_tune.workflows.doctor import Check


@click.command(
    help="What this machine and the cluster are missing. Exit code 1 when something needs attention."
)
@click.option("--cluster", default=None, help="Look at this cluster.")
@json_option
def command(cluster: str | None, as_json: bool) -> int:
    from gpt_tune.jsonable import as_json as plain_data
    from gpt_tune.workflows import doctor

    checks = [*doctor.examine(cluster), *_settings()]
    code = EXIT_FINDING if doctor.needs_attention(checks) else EXIT_DONE
    if as_json:
        step = doctor.next_step(checks)
        emit_json(
            {
                "schema": "gpt-tune/doctor/1",
                "doctor": [plain_data(c) for c in checks],
                "summary": doctor.in_words(checks),
                "next_step": step,
            }
        )
        return code
    show(doctor.in_words(checks))
    show()
    show_table(("check", "status", "what"), [(c.check, c.status, c.text) for c in checks])
    for check in checks:
        if check.fix and check.status in ("warning", "error"):
            show(f"{check.check}: {check.fix}")
    show(f"next: {doctor.next_step(checks)}")
    return code


def _settings() -> list[Check]:
    """The wizard's own settings, where there are any: a wrong one keeps it from opening."""
    from gpt_tune.errors import UserError
    from gpt_tune.workflows.doctor import Check
    from tui import settings

    path = settings.path_of()
    if not path.exists():
        return []
    try:
        mine = settings.load().keys
        if mine:
            from tui import keys

            keys.keymap(mine, str(path))
    except UserError as error:
        return [Check("wizard", "error", error.message, error.hint)]
    return [Check("wizard", "ok", str(path))]
