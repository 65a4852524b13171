"""Owns `gpt-tune watch`: follow a run or log files, as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpt_tune.errors import UserError
from gpt_tune.resources import existing
from tui.cli.options import json_option

if TYPE_CHECKING:
    from tui.cli.targets import Target


@click.command(
    help="Follow a run (by its id, or the newest one), log files or a folder of them. "
    "Ends with the job; 1 when it failed."
)
@click.argument("targets", nargs=-1, metavar="[ID | LOGFILE... | FOLDER]")
@click.option("--once", is_flag=True, help="Say how it stands now and end.")
@click.option("--log-format", default="auto", help="A line of log files of your own, as for parse.")
@json_option
def command(targets: tuple[str, ...], once: bool, log_format: str, as_json: bool) -> int:
    from tui.cli.follow import follow_run
    from tui.cli.targets import target_of

    if not targets:
        return follow_run(_newest(), once, as_json)
    if log_format != "auto" and not all(existing(t) for t in targets):
        raise UserError(
            "--log-format is for log files.", "A run's own format is in its profile: custom.log_format."
        )
    if len(targets) > 1 and not all(existing(t) for t in targets):
        return _each(targets, once, as_json)
    target = target_of(targets, fetch=False, growing=True)
    return _follow(target, once, as_json, log_format)


def _each(names: tuple[str, ...], once: bool, as_json: bool) -> int:
    """Several runs, or runs and files, one after the other: only `once` comes to an end with each."""
    from tui.cli.targets import target_of

    targets = [
        target_of((name,), fetch=False) for name in names
    ]  # a wrong one is said before the first is shown
    if not once:
        raise UserError("Several runs cannot be followed together.", "Add --once, or name one run.")
    return max(_follow(target, once, as_json) for target in targets)


def _follow(target: Target, once: bool, as_json: bool, log_format: str = "auto") -> int:
    from tui.cli.follow import follow_files, follow_run

    if target.record is not None:
        return follow_run(target.record.run_id, once, as_json)
    return follow_files(target.paths, once, as_json, target.foreign, log_format)


def _newest() -> str:
    """The newest run that has not ended, else the newest."""
    from gpt_tune.ledger import Ledger

    records = Ledger.open().runs(limit=50)
    if not records:
        raise UserError(
            "There is no run to watch yet.", "Name a log file, or submit one: gpt-tune submit smoke"
        )
    return next((r for r in records if r.active), records[0]).run_id
