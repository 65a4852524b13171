"""Owns `gpt-tune signal`: send a signal to a running job."""

from __future__ import annotations

import click

from tui.cli.options import json_option
from tui.cli.submission import report_changed, report_outside


@click.command(
    help="Send a signal to a running job. USR1 (the default) to its script means: save a checkpoint and stop."
)
@click.argument("identity", metavar="ID")
@click.argument("name", metavar="[SIGNAL]", default="USR1")
@click.option("--all", "everyone", is_flag=True, help="To every process of the job, not to its script alone.")
@json_option
def command(identity: str, name: str, everyone: bool, as_json: bool) -> int:
    from gpt_tune.jobs import control
    from gpt_tune.schedulers.base import SignalTarget
    from gpt_tune.workflows import outside

    target: SignalTarget = "all" if everyone else "script"
    if job := outside.find(identity):
        known = control.signal_name(name)
        return report_outside(
            "signal", job.act(lambda there, job_id: there.signal(job_id, known, target)), as_json
        )
    return report_changed("signal", control.signal(identity, name, target), as_json)
