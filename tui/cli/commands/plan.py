"""Owns `gpt-tune plan`: the best layouts, ranked, with reasons."""

from __future__ import annotations

from typing import Any

import click

from gpt_tune.errors import EXIT_DONE, EXIT_FINDING, UserError, unknown_name
from tui.cli.options import WholeNumber, json_option, plan_options
from tui.cli.output import emit_json, show
from tui.widgets.words import plural


@click.command(
    help="Find the best parallel layouts, for a PROFILE or as asked. Exit code 1 when nothing fits."
)
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
@click.option(
    "--sort",
    default="rank",
    show_default=True,
    metavar="rank|step|memory|risk",
    help="Order of the layouts found; each keeps its rank.",
)
@click.option(
    "--explain",
    type=WholeNumber("The number of the layout"),
    metavar="N",
    help="Number N in full: step by cause, memory by stage, reasons.",
)
@click.option("--compare", metavar="N,M", help="Two of the layouts side by side.")
@click.option(
    "--top",
    type=WholeNumber("The number of plans"),
    default=10,
    show_default=True,
    help="How many layouts to show.",
)
@json_option
def command(
    as_json: bool, target_step: float | None, within: float, sort: str, explain: int | None, compare: str | None,
    **options: Any,
) -> int:  # fmt: skip
    from gpt_tune import planner
    from gpt_tune.workflows.ordering import SORTS, in_order
    from gpt_tune.workflows.two_plans import of_search, two_plans
    from tui.cli.plan_request import request_from

    if sort not in SORTS:
        raise unknown_name("order", sort, SORTS)
    request = request_from(**options, target_seconds=target_step, within=within / 100.0)
    result = planner.search(request)
    pair = of_search(result, compare) if compare else None
    told = None if explain is None else next((p for p in result.plans if p.rank == explain), None)
    if explain is not None and told is None:
        raise UserError(
            f"There is no number {explain}.", f"{plural(len(result.plans), 'layout')} found; see --top."
        )
    if as_json:
        data = planner.plan_json(request, result)
        data["plans"] = [plan.to_json() for plan in in_order(result.plans, sort)]
        data["compare"] = two_plans(*pair).to_json() if pair else None
        emit_json(data)
    else:
        from gpt_tune import calibration
        from gpt_tune.workflows.cost import cost_of
        from tui.cli.plan_text import show_compared, show_plan, show_search

        known = calibration.load(request.node, request.cluster)
        show_search(
            request, result, known, in_order(result.plans, sort), reasons=told is None and pair is None
        )
        if told is not None:
            show_plan(told)
            show(f"cost    {cost_of(request, told).words}")
        if pair is not None:
            show_compared(*pair)
    return EXIT_DONE if result.plans else EXIT_FINDING
