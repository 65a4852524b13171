"""Owns `gpt-tune jobs`: my runs, live and ended."""

from __future__ import annotations

import click

from gpt_tune.errors import EXIT_DONE
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show, show_table


@click.command(help="Runs submitted with gpt-tune, newest first, with their state now.")
@click.option("--active", is_flag=True, help="Only runs that have not ended.")
@click.option(
    "--search",
    "wanted",
    default="",
    metavar="WORDS",
    help="Only runs that match every word: a name, model, state, tag or note; state:failed, tag:x, -word too.",
)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@click.option(
    "--adopt", "adopted", metavar="JOBID", help="Keep a job of mine that was submitted elsewhere as a run."
)
@json_option
def command(active: bool, wanted: str, limit: int, adopted: str | None, as_json: bool) -> int:
    from gpt_tune import jobs
    from gpt_tune.ledger import Ledger
    from gpt_tune.workflows import history, live, progress

    ledger = Ledger.open()
    if adopted is not None:
        from gpt_tune.workflows import adopt

        record = adopt.adopt(adopted, ledger=ledger)
        say(f"Job {adopted} is run {record.run_id} from now on.")
    live.refresh(ledger)
    known = ledger.runs(limit=None if wanted else limit)
    records = [r for r in history.search(known, wanted) if r.active or not active][:limit]
    records = progress.note(ledger, records)
    data = jobs.jobs_json(ledger, records)
    if as_json:
        emit_json(data)
        return EXIT_DONE
    if not data["jobs"]:
        say("No run matches." if known else "No runs yet. `gpt-tune submit smoke` makes one.")
        return EXIT_DONE
    rows = [
        (j["run_id"], j["job_id"], j["cluster"], j["name"], j["state"], j["nodes"], j["gpus"] or None,
         j["started_at"] or j["submitted_at"], j["last_iteration"], " ".join(j["tags"]), j["note"] or j["reason_text"])
        for j in data["jobs"]
    ]  # fmt: skip
    show_table(
        ("run", "job", "cluster", "name", "state", "nodes", "GPUs", "since", "step", "tags", "note or why"),
        rows,
        "5,6,8",
    )
    if data["stale_seconds"]:
        show(
            f"(states as of {data['as_of']}, {data['stale_seconds']:.0f} s ago: the scheduler does not answer)"
        )
    return EXIT_DONE
