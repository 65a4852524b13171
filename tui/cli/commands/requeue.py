"""Owns `gpt-tune requeue`: put a running job back into the queue."""

from __future__ import annotations

import click

from gpt_tune.errors import UserError
from tui.cli.options import json_option
from tui.cli.output import can_ask
from tui.cli.submission import report_changed, report_outside


@click.command(
    help="End a running job and put it back into the queue: it starts anew, from its last checkpoint if it has one."
)
@click.argument("identity", metavar="ID")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def command(identity: str, yes: bool, as_json: bool) -> int:
    from gpt_tune import jobs
    from gpt_tune.jobs import control
    from gpt_tune.workflows import outside

    asks = can_ask(yes, as_json)
    if job := outside.find(identity):
        if asks:
            _ask(job.status.name, job.job_id)
        return report_outside("requeue", job.act(lambda there, job_id: there.requeue(job_id)), as_json)
    record = jobs.find(identity)
    if asks:
        _ask(record.name, record.job_id)
    return report_changed("requeue", control.requeue(record.run_id), as_json)


def _ask(name: str, job_id: str | None) -> None:
    if not click.confirm(
        f"End {name}, job {job_id}, and put it back into the queue? Work since its last checkpoint is lost.",
        default=False,
    ):
        raise UserError("Not requeued.", "")
