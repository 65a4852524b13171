"""Owns `gpt-tune submit`: a profile becomes a job."""

from __future__ import annotations

import click

from gpt_tune.errors import EXIT_DONE
from tui.cli.options import json_option, set_option
from tui.cli.output import can_ask, say


@click.command(
    help="Submit a profile (a name of `gpt-tune profiles`, or a file) as a job. "
    "In a terminal it asks first; with --yes or --json, and where there is no terminal, it does not."
)
@click.argument("profile")
@set_option
@click.option("--cluster", default=None, help="Submit to this cluster; short for --set cluster=NAME.")
@click.option("--dry-run", is_flag=True, help="Show what would be submitted; write and submit nothing.")
@click.option(
    "--until-done", is_flag=True, help="Go on from the last checkpoint, job after job, until it is done."
)
@click.option(
    "--max-jobs", type=int, default=None, help="With --until-done: at most so many jobs; default 20."
)
@click.option(
    "--edit",
    "edits",
    multiple=True,
    metavar="FILE",
    help="Edit this file of the job (job.sbatch) in $EDITOR first; repeatable.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def command(
    profile: str,
    changes: tuple[str, ...],
    cluster: str | None,
    dry_run: bool,
    until_done: bool,
    max_jobs: int | None,
    edits: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> int:
    from gpt_tune.profiles import store
    from gpt_tune.workflows import chain, launch
    from gpt_tune.workflows.machine import check_given_partition
    from tui.cli.submission import describe, edited, report_dry_run, report_submitted

    if max_jobs is not None and not until_done:
        raise click.UsageError("--max-jobs goes with --until-done.", click.get_current_context())
    if edits and until_done:
        raise click.UsageError(
            "--edit does not go with --until-done: each job of a chain is rendered anew.",
            click.get_current_context(),
        )
    most = chain.MAX_JOBS if max_jobs is None else max_jobs
    settings = [*changes, *([f"cluster={cluster}"] if cluster else [])]
    ready = launch.prepare(store.load_layered(profile, settings).profile)
    check_given_partition(ready.cluster, changes)
    ready = edited(ready, edits)
    if until_done:
        chain.prepared(ready, most)  # what is in the way shows before anything is asked
    if dry_run:
        return report_dry_run(chain.prepared(ready, most) if until_done else ready, as_json)
    launch.check_trainer(ready)  # before anything is asked
    if can_ask(yes, as_json):
        describe(ready)
        if not click.confirm("Submit?", default=True, err=True):
            say("Not submitted.")
            return EXIT_DONE
    else:
        for warning in ready.warnings:
            say(f"note: {warning}")
    record = chain.submit(ready, max_jobs=most) if until_done else launch.submit(ready)
    return report_submitted(record, ready.warnings, as_json)
