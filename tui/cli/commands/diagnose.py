"""Owns `gpt-tune diagnose`: why a job failed, from its log."""

from __future__ import annotations

from pathlib import Path

import click

from gpt_tune.errors import EXIT_DONE, EXIT_FINDING
from tui.cli.options import json_option
from tui.cli.output import emit_json, show


@click.command(
    help="Root cause and findings of log files, of a folder of them, or of a run. Exit code 1 from warning up."
)
@click.argument("logs", nargs=-1, required=True, metavar="LOGFILE... | FOLDER | ID")
@json_option
def command(logs: tuple[str, ...], as_json: bool) -> int:
    from gpt_tune.diagnosis import diagnose
    from gpt_tune.diagnosis.types import diagnose_json
    from gpt_tune.workflows.findings import judgements
    from tui.cli.follow import finding_words
    from tui.cli.targets import target_of

    target = target_of(logs, fresh=True)
    known = target.record or (target.foreign.status if target.foreign else None)
    said = judgements(target.record.run_id) if target.record is not None else None
    if known is None:
        result = diagnose(list(target.paths))
    else:
        there = [p for p in target.paths if Path(p).is_file()]
        result = diagnose(there, known.state, known.reason, known.exit_code, said)
    if as_json:
        emit_json(diagnose_json(result))
    else:
        show(f"status {result.status}")
        if result.root_cause is not None:
            show(f"root cause: {finding_words(result.root_cause)}")
        for finding in result.findings:
            if finding is not result.root_cause:
                echo = f" (echo of {finding.echo_of})" if finding.echo_of else ""
                show(f"  {finding_words(finding)}{echo}")
    return EXIT_FINDING if result.alarming else EXIT_DONE
