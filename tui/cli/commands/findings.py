"""Owns `gpt-tune findings`: what was found of a run, and the user's word on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpt_tune.errors import EXIT_DONE, EXIT_FINDING, UserError
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show

if TYPE_CHECKING:
    from gpt_tune.workflows.findings import Kept


@click.command(
    help="Findings of a run (ID: run id or job id), and your word on them, kept with the run. "
    "A dismissed finding stays in the list and alarms nobody. Exit code 1 from warning up."
)
@click.argument("run", metavar="ID")
@click.option(
    "--dismiss", "dismissed", multiple=True, metavar="F12", help="Call a finding nothing; repeatable."
)
@click.option(
    "--correct", "corrected", multiple=True, metavar="F12=F8", help="It really is another one; repeatable."
)
@click.option("--restore", "restored", multiple=True, metavar="F12", help="Take your word back; repeatable.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for --dismiss and --correct.")
@json_option
def command(
    run: str, dismissed: tuple[str, ...], corrected: tuple[str, ...], restored: tuple[str, ...], reason: str,
    as_json: bool,
) -> int:  # fmt: skip
    from gpt_tune import jobs
    from gpt_tune.workflows import findings

    record = jobs.find(run)
    if reason and not (dismissed or corrected):
        raise UserError(
            "--reason belongs to --dismiss or --correct.", "Name the finding, for example --dismiss F12."
        )
    pairs = [_pair(text) for text in corrected]
    for identity in restored:
        findings.restore(record, identity)
    for identity in dismissed:
        findings.dismiss(record, identity, reason)
    for identity, to in pairs:
        findings.correct(record, identity, to, reason)
    found, diagnosis = findings.kept(record), findings.diagnosis_of(record)
    if as_json:
        emit_json(findings.findings_json(record, found, diagnosis))
    else:
        show(f"status {diagnosis.status}")
        for one in found:
            show(_words(one))
        if not found:
            say(f"Nothing was found of {record.run_id}.")
    return EXIT_FINDING if diagnosis.alarming else EXIT_DONE


def _pair(text: str) -> tuple[str, str]:
    identity, equals, to = text.partition("=")
    if not (identity and equals and to):
        raise UserError(f"--correct {text[:40]} does not say by what.", "Write it like --correct F12=F8.")
    return identity, to


def _words(one: Kept) -> str:
    from tui.cli.follow import finding_words

    past = "" if one.now else f" (seen {one.found_at or 'earlier'}; its log does not show it now)"
    return f"  {finding_words(one.finding)}{past}"
