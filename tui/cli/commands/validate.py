"""Owns `gpt-tune validate`: predictions against measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpt_tune.errors import EXIT_DONE, UserError, check_given, shown
from gpt_tune.resources import existing_dir, existing_file, path_of
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show, show_table


@click.command(help="Hold predictions against measured runs (a CSV); --fit fits on another CSV first.")
@click.argument("runs")
@click.option("--fit", default=None, help="Fit the constants on these runs before.")
@click.option("--csv", "out", default=None, help="Write one line a run here.")
@json_option
def command(runs: str, fit: str | None, out: str | None, as_json: bool) -> int:
    from gpt_tune.workflows.validate import validate
    from gpt_tune.workflows.validate_report import report_csv, report_json

    if fit is not None:
        say("fitting; a thousand runs take a minute or two")
    report = validate(_file(runs), None if fit is None else _file(fit))
    if report.ignored_columns:
        say(f"ignored columns: {', '.join(report.ignored_columns)}")
    if out is not None:
        _write(path_of(out), report_csv(report))
    data = report_json(report)
    if as_json:
        emit_json(data)
    else:
        _show(data)
    return EXIT_DONE


def _file(name: str) -> Path:
    check_given(name, "the CSV file")
    if existing_dir(name) is not None:
        raise UserError(f"{shown(name)} is a folder.", "Give a CSV of measured runs.")
    path = existing_file(name)
    if path is None:
        raise UserError(f"There is no file {shown(name)}.", "Give a CSV of measured runs.")
    return path


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror}.", "Check the folder.") from error


def _show(data: dict[str, Any]) -> None:
    fitted = f", fitted on {data['fitted_rows']}" if data["fitted_rows"] else ", nothing fitted"
    show(f"{data['rows']} runs{fitted}, {len(data['skipped'])} skipped")
    for item in data["skipped"][:5]:
        show(f"  skipped {item['id']}: {item['reason']}")
    rows = [("step time", *_figures(data["time"])), ("memory", *_figures(data["memory"]))]
    rows += [(f"memory, {kind}", *_figures(part)) for kind, part in data["memory"]["by_kind"].items()]
    rows += [
        (f"{part['series']}: {what}", *_figures(part[what]))
        for part in data["per_series"]
        for what in ("time", "memory")
        if part[what]["rows"]
    ]
    show_table(
        ("what", "runs", "mean error", "median", "worst", "inside the 90 % interval"), rows, "1,2,3,4,5"
    )
    oom = data["oom"]
    if oom["rows"]:
        show(f"out of memory: {oom['caught']} of {oom['rows']} called, {oom['false_alarms']} false alarms")


def _figures(part: dict[str, Any]) -> tuple[Any, ...]:
    shares = (part["mape"], part["median"], part["worst"], part["covered_90"])
    return (part["rows"], *("" if s is None else f"{s:.1%}" for s in shares))
