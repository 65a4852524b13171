"""Owns `gpt-tune release`: let a held job start."""

from __future__ import annotations

import click

from tui.cli.options import json_option
from tui.cli.submission import report_changed, report_outside


@click.command(help="Let a held job start.")
@click.argument("identity", metavar="ID")
@json_option
def command(identity: str, as_json: bool) -> int:
    from gpt_tune.jobs import control
    from gpt_tune.workflows import outside

    if job := outside.find(identity):
        return report_outside("release", job.act(lambda there, job_id: there.release(job_id)), as_json)
    return report_changed("release", control.release(identity), as_json)
