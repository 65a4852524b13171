"""Owns `gpt-tune plan`: the best layouts, ranked, with reasons."""

from __future__ import annotations

from typing import Any

import click

from gpt_tune.errors import EXIT_DONE, EXIT_FINDING
from tui.cli.options import json_option, plan_options
from tui.cli.output import emit_json


@click.command(help="Find the best parallel layouts. Exit code 1 when nothing fits.")
@plan_options
@click.option(
    "--objective",
    default="step",
    show_default=True,
    metavar="step|gpus|headroom",
    help="Fastest step, fewest GPUs (--gpus is then the most there are), or most memory left.",
)
@click.option("--target-step", type=float, help="With --objective gpus: seconds a step may take at most.")
@click.option(
    "--within",
    type=float,
    default=5.0,
    show_default=True,
    help="With --objective headroom: percent slower than the fastest that is still fine.",
)
@click.option("--top", type=int, default=10, show_default=True, help="How many layouts to show.")
@json_option
def command(as_json: bool, target_step: float | None, within: float, **options: Any) -> int:
    from gpt_tune import planner
    from tui.cli.plan_request import request_from

    request = request_from(**options, target_seconds=target_step, within=within / 100.0)
    result = planner.search(request)
    if as_json:
        emit_json(planner.plan_json(request, result))
    else:
        from gpt_tune import calibration
        from tui.cli.plan_text import show_search

        show_search(request, result, calibration.load(request.node, request.cluster))
    return EXIT_DONE if result.plans else EXIT_FINDING
