"""Owns `gpt-tune watch`: follow a run or log files, as lines."""

from __future__ import annotations

import click

from gpt_tune.errors import UserError
from tui.cli.options import json_option


@click.command(
    help="Follow a run (by its id, or the newest one) or log files. Ends with the job; 1 when it failed."
)
@click.argument("targets", nargs=-1, metavar="[ID | LOGFILE...]")
@click.option("--once", is_flag=True, help="Say how it stands now and end.")
@json_option
def command(targets: tuple[str, ...], once: bool, as_json: bool) -> int:
    from tui.cli.follow import follow_files, follow_run
    from tui.cli.targets import target_of

    if not targets:
        return follow_run(_newest(), once, as_json)
    target = target_of(targets, fetch=False)
    if target.record is not None:
        return follow_run(target.record.run_id, once, as_json)
    return follow_files(target.paths, once, as_json, target.foreign)


def _newest() -> str:
    """The newest run that has not ended, else the newest."""
    from gpt_tune.ledger import Ledger

    records = Ledger.open().runs(limit=50)
    if not records:
        raise UserError(
            "There is no run to watch yet.", "Name a log file, or submit one: gpt-tune submit smoke"
        )
    return next((r for r in records if r.active), records[0]).run_id
