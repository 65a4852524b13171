"""Owns `gpt-tune cancel`: end a job."""

from __future__ import annotations

import click

from gpt_tune.errors import EXIT_DONE, UserError
from tui.cli.options import json_option
from tui.cli.output import can_ask, emit_json, say
from tui.cli.submission import report_outside


@click.command(help="Cancel a job by run id or job id. A job that has ended stays as it is.")
@click.argument("identity", metavar="ID")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def command(identity: str, yes: bool, as_json: bool) -> int:
    from gpt_tune import jobs
    from gpt_tune.workflows import chain, outside

    asks = can_ask(yes, as_json)
    if job := outside.find(identity):
        if asks:
            _ask(job.status.name, job.job_id)
        return report_outside("cancel", job.act(lambda there, job_id: there.cancel(job_id)), as_json)
    record = jobs.find(identity)
    if asks:
        _ask(record.name, record.job_id)
    record = chain.cancel(record.run_id)
    if as_json:
        emit_json({"schema": "gpt-tune/cancel/1", "cancel": [jobs.run_json(record)]})
    else:
        say(f"{record.run_id} (job {record.job_id}): {record.state}")
    return EXIT_DONE


def _ask(name: str, job_id: str | None) -> None:
    if not click.confirm(f"Cancel {name}, job {job_id}?", default=True):
        raise UserError("Not cancelled.", "")
