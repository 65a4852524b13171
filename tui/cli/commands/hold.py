"""Owns `gpt-tune hold`: keep a waiting job from starting."""

from __future__ import annotations

import click

from tui.cli.options import json_option
from tui.cli.submission import report_changed, report_outside


@click.command(help="Keep a waiting job from starting, until `gpt-tune release`.")
@click.argument("identity", metavar="ID")
@json_option
def command(identity: str, as_json: bool) -> int:
    from gpt_tune.jobs import control
    from gpt_tune.workflows import outside

    if job := outside.find(identity):
        return report_outside("hold", job.act(lambda there, job_id: there.hold(job_id)), as_json)
    return report_changed("hold", control.hold(identity), as_json)
