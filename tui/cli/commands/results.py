"""Owns `gpt-tune results`: ended runs as figures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from gpt_tune.errors import EXIT_DONE, UserError
from gpt_tune.resources import path_of
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show, show_table

if TYPE_CHECKING:
    from gpt_tune.ledger import RunRecord

SCHEMA = "gpt-tune/results/1"


@click.group(
    invoke_without_command=True,
    help="What runs came to: list, export, compare. Without a subcommand: the list.",
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

        data = {"schema": SCHEMA, "results": [_exported(r, form) for r in records]}
        text = json.dumps(plain(data), allow_nan=False) + "\n"
    if out is None:
        sys.stdout.write(text)
        return EXIT_DONE
    path = path_of(out)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror}.", "Check the folder.") from error
    say(f"{len(records)} run(s) in {path}")
    return EXIT_DONE


def _exported(record: RunRecord, form: str) -> dict[str, Any]:
    from gpt_tune.workflows import results
    from gpt_tune.workflows.benchmark import benchmark_json

    if form == "json":
        return results.row(record)
    parsed = results.parsed(record)
    if parsed is None:
        raise UserError(f"The log of {record.run_id} is gone.", "Leave that run out.")
    return benchmark_json(parsed, record)


def _records(identities: tuple[str, ...]) -> list[RunRecord]:
    from gpt_tune import jobs
    from gpt_tune.ledger import Ledger

    if not identities:
        return [r for r in Ledger.open().runs() if r.job_ids]
    return [jobs.find(i) for i in identities]


@command.command(help="What differs between two runs: figures and settings.")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@json_option
def compare(first: str, second: str, as_json: bool) -> int:
    from gpt_tune import jobs
    from gpt_tune.workflows import results

    differences = results.compare(jobs.find(first), jobs.find(second))
    if as_json:
        emit_json({"schema": SCHEMA, "results": differences})
        return EXIT_DONE
    if not differences:
        show("no difference")
    else:
        rows = [
            (d["key"], d["a"], d["b"], "" if d["ratio"] is None else f"x {d['ratio']:.3g}")
            for d in differences
        ]
        show_table(("what", first, second, "B/A"), rows)
    return EXIT_DONE
