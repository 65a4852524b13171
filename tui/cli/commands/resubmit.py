"""Owns `gpt-tune resubmit`: an old run again."""

from __future__ import annotations

import click

from gpt_tune.errors import EXIT_DONE
from tui.cli.options import json_option, set_option
from tui.cli.output import can_ask, say


@click.command(help="Submit a run again; --with-fix changes what its log says ended it.")
@click.argument("identity", metavar="ID")
@click.option("--with-fix", is_flag=True, help="Apply the setting that cures the root cause.")
@set_option
@click.option("--dry-run", is_flag=True, help="Show what would be submitted; submit nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def command(
    identity: str, with_fix: bool, changes: tuple[str, ...], dry_run: bool, yes: bool, as_json: bool
) -> int:
    from gpt_tune import jobs
    from gpt_tune.workflows import launch
    from gpt_tune.workflows.exclude import exclude
    from gpt_tune.workflows.machine import check_given_partition
    from gpt_tune.workflows.resubmit import again
    from tui.cli.submission import describe, report_dry_run, report_submitted

    record = jobs.find(identity)
    new = again(record, with_fix, changes)
    ready = launch.prepare(new.profile)
    check_given_partition(ready.cluster, changes)
    for change in new.changes:
        say(f"changed: {change}")
    if launch.EDITED in record.tags:
        say(f"note: files of {record.run_id} had been edited by hand; they are generated anew.")
    if dry_run:
        return report_dry_run(ready, as_json)
    launch.check_trainer(ready)  # before anything is asked
    if can_ask(yes, as_json):
        describe(ready)
        if not click.confirm(f"Submit {record.run_id} again?", default=True, err=True):
            say("Not submitted.")
            return EXIT_DONE
    submitted = launch.submit(ready)
    for broken in new.exclusions:
        exclude(broken)
        say(f"{broken.node} is left out of further jobs ({broken.why}); back with: "
            f"gpt-tune site {broken.cluster} --include {broken.node}")  # fmt: skip
    return report_submitted(submitted, ready.warnings, as_json)
