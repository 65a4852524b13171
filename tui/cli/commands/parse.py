"""Owns `gpt-tune parse`: what log files say, as a table, JSON or CSV."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING

import click

from gpt_tune.errors import EXIT_DONE, check_given
from tui.cli.options import json_option
from tui.cli.output import emit_json, show, show_table
from tui.widgets.words import plural

if TYPE_CHECKING:
    from gpt_tune.logs.parse import ParseResult

_LAST_STEPS = 10


@click.command(
    help="Steps, losses and rates out of the log files of one run, in order, or of a folder of them (a file a rank); "
    "or of a run by its id."
)
@click.argument("logs", nargs=-1, required=True, metavar="LOGFILE | FOLDER | ID...")
@click.option("--csv", "as_csv", is_flag=True, help="The steps as CSV.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "csv", "benchmark"]),
    default=None,
    help="benchmark: one JSON object as benchmark collections keep it.",
)
@click.option("--model", default=None, help="Model, where the log does not say: for model TFLOPS.")
@click.option("--gpus", type=click.IntRange(min=1), default=None, help="GPUs, where the log does not say.")
@click.option("--seq-length", type=click.IntRange(min=1), default=None, help="Tokens in a sequence.")
@click.option("--global-batch-size", type=click.IntRange(min=1), default=None, help="Sequences a step.")
@click.option(
    "--log-format", default="auto", help="A line of it: 'step {iteration} loss {loss} in {step_time_s}s'."
)
@json_option
def command(
    logs: tuple[str, ...], as_csv: bool, form: str | None, model: str | None, gpus: int | None,
    seq_length: int | None, global_batch_size: int | None, log_format: str, as_json: bool,
) -> int:  # fmt: skip
    from gpt_tune.logs.parse import parse_csv, parse_files, parse_json
    from tui.cli.targets import target_of

    if as_json and (as_csv or form in ("csv", "text")):
        raise click.UsageError(
            "--json goes with neither --csv nor --format csv or text.", click.get_current_context()
        )
    check_given(log_format, "--log-format")
    form = form or ("csv" if as_csv else "json" if as_json else "text")
    target = target_of(logs)
    shape = None
    if model is not None:
        from gpt_tune.models import catalogue

        shape = catalogue.get(model)
    elif target.record is not None:
        from gpt_tune.workflows.records import speed_shape_of, training_gpus_of

        shape, gpus = speed_shape_of(target.record), gpus or training_gpus_of(target.record)
    if target.record is not None and log_format == "auto":
        from gpt_tune.workflows.records import log_format_of

        log_format = log_format_of(target.record)
    result = parse_files(target.paths, shape, gpus, seq_length, global_batch_size, log_format)
    if form == "csv":
        sys.stdout.write(parse_csv(result))
    elif form == "benchmark":
        from gpt_tune.workflows.benchmark import benchmark_json

        emit_json(benchmark_json(result, target.record))
    elif form == "json":
        emit_json(parse_json(result))
    else:
        _show(result)
    return EXIT_DONE


def _show(result: ParseResult) -> None:
    s = result.summary
    show(
        f"trainer {result.trainer or 'unknown'}, {plural(s.steps, 'step')} in {plural(len(result.runs), 'run segment')}"
    )
    for run in result.runs:
        resumed = f", resumed from {run.resumed_from}" if run.resumed_from is not None else ""
        show(f"  iterations {run.first} to {run.last}{resumed}")
    if not s.steps:
        return
    deviation = "" if s.stdev_step_time_ms is None else f" +- {s.stdev_step_time_ms:.1f}"
    if s.median_step_time_ms is not None and s.mean_step_time_ms is not None:
        show(
            f"step time median {s.median_step_time_ms:.1f} ms, mean {s.mean_step_time_ms:.1f}{deviation} "
            f"({s.warmup_steps} warm-up steps left out)"
        )
    if s.median_model_tflops is not None:
        show(f"model TFLOPS per GPU, median {s.median_model_tflops:.1f}")
    if s.first_loss is not None:
        show(f"loss {s.first_loss:g} -> {s.last_loss:g}")
    last = list(deque(result.steps(), maxlen=_LAST_STEPS))
    rows = [
        (x.iteration, x.step_time_ms, x.loss, x.learning_rate, x.grad_norm, x.model_tflops, x.skipped, x.nan)
        for x in last
    ]
    show()
    headers = ("iteration", "ms", "loss", "learning rate", "grad norm", "model TFLOPS", "skipped", "nan")
    show_table(headers, rows, "0,1,2,3,4,5,6,7")
    for m in result.memory[:8]:
        rank = "" if m.rank is None else f"rank {m.rank} "
        allocated, reserved = m.max_allocated_gib or m.allocated_gib, m.max_reserved_gib or m.reserved_gib
        show(f"memory {rank}allocated {_gib(allocated)}, reserved {_gib(reserved)}")


def _gib(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f} GiB"
