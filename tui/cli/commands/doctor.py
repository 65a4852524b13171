"""Owns `gpt-tune doctor`: what this machine and the cluster are missing."""

from __future__ import annotations

import click

from gpt_tune.errors import EXIT_DONE, EXIT_FINDING
from tui.cli.options import json_option
from tui.cli.output import emit_json, show, show_table


@click.command(
    help="What this machine and the cluster are missing. Exit code 1 when something needs attention."
)
@click.option("--cluster", default=None, help="Look at this cluster.")
@json_option
def command(cluster: str | None, as_json: bool) -> int:
    from gpt_tune.jsonable import as_json as plain_data
    from gpt_tune.workflows import doctor

    checks = doctor.examine(cluster)
    code = EXIT_FINDING if doctor.needs_attention(checks) else EXIT_DONE
    if as_json:
        step = doctor.next_step(checks)
        emit_json(
            {"schema": "gpt-tune/doctor/1", "doctor": [plain_data(c) for c in checks], "next_step": step}
        )
        return code
    show_table(("check", "status", "what"), [(c.check, c.status, c.text) for c in checks])
    for check in checks:
        if check.fix and check.status in ("warning", "error"):
            show(f"{check.check}: {check.fix}")
    show(f"next: {doctor.next_step(checks)}")
    return code
