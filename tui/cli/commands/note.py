"""Owns `gpt-tune note`: the user's own words on a run."""

from __future__ import annotations

import click

from gpt_tune.errors import EXIT_DONE
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show


@click.command(
    help="Put a note on a run (ID: run id or job id). Without TEXT: show it. An empty TEXT takes it away."
)
@click.argument("run", metavar="ID")
@click.argument("words", nargs=-1, metavar="[TEXT]")
@json_option
def command(run: str, words: tuple[str, ...], as_json: bool) -> int:
    from gpt_tune import jobs
    from gpt_tune.ledger import Ledger
    from gpt_tune.workflows import history

    ledger = Ledger.open()
    record = jobs.find(run, ledger)
    if words:
        record = history.set_note(ledger, record.run_id, " ".join(words))
    if as_json:
        emit_json({"schema": "gpt-tune/note/1", "note": [history.to_json(record)]})
    elif record.note:
        show(record.note)
    else:
        say(f"{record.run_id} has no note.")
    return EXIT_DONE
