"""Owns `gpt-tune tag`: the user's own tags on a run."""

from __future__ import annotations

import click

from gpt_tune.errors import EXIT_DONE
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show


@click.command(
    context_settings={"ignore_unknown_options": True},  # -x takes the tag x away
    help="Change the tags of a run (ID: run id or job id): +x adds one, -x takes it away. Without changes: show them.",
)
@click.argument("run", metavar="ID")
@click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="[+TAG|-TAG]...")
@json_option
def command(run: str, changes: tuple[str, ...], as_json: bool) -> int:
    from gpt_tune import jobs
    from gpt_tune.ledger import Ledger
    from gpt_tune.workflows import history

    ledger = Ledger.open()
    record = jobs.find(run, ledger)
    if changes:
        record = history.change_tags(ledger, record.run_id, changes)
    if as_json:
        emit_json({"schema": "gpt-tune/tag/1", "tag": [history.to_json(record)]})
    elif record.user_tags:
        show(" ".join(record.user_tags))
    else:
        say(f"{record.run_id} has no tags.")
    return EXIT_DONE
