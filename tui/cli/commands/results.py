"""Owns `gpt-tune results`: ended runs as figures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from gpt_tune.errors import EXIT_DONE, UserError
from gpt_tune.resources import path_of
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show, show_table
from tui.widgets.words import plural

if TYPE_CHECKING:
    from gpt_tune.ledger import RunRecord
    from gpt_tune.logs.parse import ParseResult
    from gpt_tune.workflows.pictures.paint import Panel
    from gpt_tune.workflows.series import Drawn

SCHEMA = "gpt-tune/results/1"


@click.group(
    invoke_without_command=True,
    help="What runs came to: list, export, compare, plot. Without a subcommand: the list.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> int:
    if ctx.invoked_subcommand is None:
        return _list(as_json, 50)
    ctx.find_root().obj = {"json": as_json}
    return EXIT_DONE


@command.command("list", help="One row a run, predicted beside measured.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@json_option
def list_(limit: int, as_json: bool) -> int:
    return _list(as_json, limit)


def _list(as_json: bool, limit: int) -> int:
    from gpt_tune.ledger import Ledger
    from gpt_tune.workflows import results

    items = results.rows(Ledger.open(), limit)
    if as_json:
        emit_json({"schema": SCHEMA, "results": items})
        return EXIT_DONE
    if not items:
        say("No runs yet. `gpt-tune submit smoke` makes one.")
        return EXIT_DONE
    show_table(_LIST_COLUMNS, [_list_row(item) for item in items], "3,6,7,8,9,10,11")
    return EXIT_DONE


_LIST_COLUMNS = (
    "run", "name", "model", "GPUs", "layout", "state", "steps", "ms", "predicted", "error",
    "model TFLOPS", "loss",
)  # fmt: skip


def _list_row(item: dict[str, Any]) -> tuple[Any, ...]:
    return (
        item["run_id"], item["name"], item["model"], item["gpus"] or None, item["layout"],
        item["state"], item["steps"], item["median_step_time_ms"], item["predicted_step_time_ms"],
        _percent(item["step_time_error"]), item["median_model_tflops"], item["last_loss"],
    )  # fmt: skip


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:+.0%}"


@command.command(help="Runs as CSV, JSON or benchmark objects, on stdout or into --out. Without IDs: all.")
@click.argument("identities", nargs=-1, metavar="[ID...]")
@click.option(
    "--format", "form", type=click.Choice(["csv", "json", "benchmark"]), default="csv", show_default=True
)
@click.option("--out", default=None, help="File to write.")
@json_option
def export(identities: tuple[str, ...], form: str, out: str | None, as_json: bool) -> int:
    from gpt_tune.workflows import results

    form = "json" if as_json and form == "csv" else form
    records = _records(identities)
    if form == "csv":
        text = results.to_csv([results.row(r) for r in records])
    else:
        import json

        from tui.cli.output import plain

        exported = [_exported(r, form, bool(identities)) for r in records]
        data = {"schema": SCHEMA, "results": [e for e in exported if e is not None]}
        text = json.dumps(plain(data), allow_nan=False) + "\n"
    if out is None:
        sys.stdout.write(text)
        return EXIT_DONE
    path = path_of(out)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror}.", "Check the folder.") from error
    say(f"{plural(len(records), 'run')} in {path}")
    return EXIT_DONE


def _exported(record: RunRecord, form: str, named: bool) -> dict[str, Any] | None:
    """One run; None for one that was not asked for by name and whose log is gone."""
    from gpt_tune.workflows import results
    from gpt_tune.workflows.benchmark import benchmark_json

    if form == "json":
        return results.row(record)
    parsed = results.parsed(record)
    if parsed is None and not named:
        say(f"{record.run_id} is left out: its log is gone.")
        return None
    if parsed is None:
        raise UserError(f"The log of {record.run_id} is gone.", "Leave that run out.")
    return benchmark_json(parsed, record)


def _records(identities: tuple[str, ...]) -> list[RunRecord]:
    from gpt_tune import jobs
    from gpt_tune.ledger import Ledger

    if not identities:
        return [r for r in Ledger.open().runs() if r.job_ids]
    return [jobs.find(i) for i in identities]


@command.command(
    help="What differs between 2 to 5 runs: figures with their ratio to the first, and settings."
)
@click.argument("identities", nargs=-1, required=True, metavar="A B [C D E]")
@json_option
def compare(identities: tuple[str, ...], as_json: bool) -> int:
    from gpt_tune import jobs
    from gpt_tune.workflows import results

    differences = results.compare(*(jobs.find(i) for i in identities))
    if as_json:
        emit_json({"schema": SCHEMA, "results": differences})
        return EXIT_DONE
    if not differences:
        show("no difference")
        return EXIT_DONE
    rows = [(d["key"], *(_compared(v, r) for v, r in zip(d["values"], d["ratios"]))) for d in differences]
    show_table(("what", *identities), rows)
    return EXIT_DONE


def _compared(value: Any, ratio: float | None) -> Any:
    shown = f"{value:.6g}" if isinstance(value, float) else value
    return f"{shown} (x {ratio:.3g})" if ratio is not None and ratio != 1 else shown


@command.command(
    help="Draw figures of 1 to 5 runs (by id) or log files over each other: in the terminal, or into a file with --out."
)
@click.argument("identities", nargs=-1, required=True, metavar="ID | LOGFILE...")
@click.option("--figure", "figures", multiple=True, help="Repeatable; default: loss and step_time_ms.")
@click.option("--axis", default="iteration", show_default=True, help="iteration, hours or tokens.")
@click.option("--log", is_flag=True, help="A logarithmic y axis.")
@click.option("--out", default=None, help="File to write: .svg or .png.")
@click.option("--width", type=int, default=None, help="Columns of the terminal, or pixels of the file.")
@json_option
def plot(
    identities: tuple[str, ...], figures: tuple[str, ...], axis: str, log: bool, out: str | None, width: int | None,
    as_json: bool,
) -> int:  # fmt: skip
    from gpt_tune.workflows import results

    panels = results.panels_of([_drawable(i) for i in identities], figures or ("loss", "step_time_ms"), axis)
    if out is not None:
        return _write(panels, out, axis, log, width, as_json)
    if as_json:
        from tui.cli.plotted import panels_json

        emit_json({"schema": SCHEMA, "results": panels_json(panels)})
        return EXIT_DONE
    from tui.cli.plotted import lines_of

    for line in lines_of(panels, axis, log, width):
        show(line)
    return EXIT_DONE


def _drawable(identity: str) -> tuple[Drawn, ParseResult]:
    """A run, or a log file by its path."""
    from gpt_tune import jobs
    from gpt_tune.logs.parse import parse_files
    from gpt_tune.resources import existing
    from gpt_tune.workflows import results
    from gpt_tune.workflows.series import Drawn

    if not existing(identity):
        return results.drawn(jobs.find(identity))
    result = parse_files([identity])
    return Drawn(path_of(identity).name, result.table, result.facts), result


def _write(panels: list[Panel], out: str, axis: str, log: bool, width: int | None, as_json: bool) -> int:
    from gpt_tune.workflows.pictures import paint

    path = path_of(out)
    data = paint.picture(
        panels,
        path.suffix.lower().lstrip("."),
        ", ".join(paint.TITLES[panel.figure] for panel in panels),
        axis,
        log,
        width or paint.WIDTH,
    )
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror}.", "Check the folder.") from error
    if as_json:
        emit_json({"schema": SCHEMA, "results": [{"file": str(path), "bytes": len(data)}]})
    else:
        say(f"{plural(len(panels), 'chart')} in {path}")
    return EXIT_DONE
