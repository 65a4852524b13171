"""Owns `gpt-tune lint`: known mistakes in job scripts, container files and configurations."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from gpt_tune.errors import EXIT_DONE, EXIT_FINDING
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show, show_table
from tui.cli.table import clean

if TYPE_CHECKING:
    from gpt_tune.lint.report import Report


@click.command(
    help="Check scripts, Dockerfiles, DeepSpeed JSON, requirements, Makefiles, log parsers and READMEs for known "
    "mistakes. `# gpt-tune: ignore RULE` switches a rule off for a line, at the head of a file for the file."
)
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option("--fix", is_flag=True, help="Make the safe changes, and show them as a diff.")
@click.option("--diff", is_flag=True, help="Show what --fix would change; change nothing.")
@click.option("--rules", "list_rules", is_flag=True, help="List every rule with its reason and source.")
@json_option
def command(paths: tuple[str, ...], fix: bool, diff: bool, list_rules: bool, as_json: bool) -> int:
    if list_rules:
        return _rules(as_json)
    if not paths:
        raise click.UsageError("Give at least one file or folder.", click.get_current_context())
    from gpt_tune.lint.report import lint, lint_json, mend

    report = mend(paths, write=fix and not diff) if fix or diff else lint(paths)
    if as_json:
        emit_json(lint_json(report))
    else:
        _show(report, applied=fix and not diff)
    return EXIT_FINDING if report.findings else EXIT_DONE


def _show(report: Report, applied: bool) -> None:
    for fix in report.fixed:
        sys.stdout.write(clean(fix.diff, keep="\n\t"))
        say(f"{'changed' if applied else 'would change'} {fix.shown}: {', '.join(fix.rules)}")
    for finding in report.findings:
        show(f"{finding.file}:{finding.line}: {finding.severity}: {finding.message} [{finding.rule}]")
        if finding.fix:
            show(f"    fix: {finding.fix}{' (--fix does it)' if finding.fixable else ''}")
    for skipped in report.skipped:
        say(f"not read: {skipped.path}: {skipped.reason}")
    counts = Counter(f.severity for f in report.findings)
    words = ", ".join(f"{counts[s]} {s}" for s in ("error", "warning", "info") if counts[s])
    say(f"{len(report.files)} files, {words or 'nothing found'}")


def _rules(as_json: bool) -> int:
    from gpt_tune.lint.rules import RULES

    unique = list({r.id: r for r in RULES}.values())
    if as_json:
        rows = [
            {
                "id": r.id,
                "severity": r.severity,
                "files": list(r.kinds),
                "why": r.why,
                "fix": r.fix,
                "source": r.source,
            }
            for r in unique
        ]
        emit_json({"schema": "gpt-tune/lint-rules/1", "rules": rows})
    else:
        show_table(
            ("rule", "severity", "why", "fix", "source"),
            [(r.id, r.severity, r.why, r.fix, r.source) for r in unique],
        )
    return EXIT_DONE
