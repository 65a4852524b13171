"""Owns `gpt-tune estimate`: one whole layout, legal or explained."""

from __future__ import annotations

from typing import Any

import click

from gpt_tune.errors import EXIT_DONE
from tui.cli.options import json_option, plan_options
from tui.cli.output import emit_json, show


@click.command(
    help="Memory and step time of one layout given by --fix (and a PROFILE); an illegal one is explained."
)
@plan_options
@json_option
def command(as_json: bool, **options: Any) -> int:
    from gpt_tune import planner
    from gpt_tune.jsonable import as_json as as_json_data
    from gpt_tune.workflows.cost import cost_of
    from tui.cli.plan_request import request_from

    request = request_from(**options, top=1)
    result = planner.estimate(request, None)
    run = cost_of(request, result.plan) if result.plan is not None else None
    if as_json:
        emit_json(
            {**planner.estimate_json(request, result), "cost": None if run is None else as_json_data(run)}
        )
        return EXIT_DONE
    from gpt_tune import calibration
    from gpt_tune.planner.sure import sure_words
    from tui.cli.plan_text import question_words, show_plan

    show(question_words(request))
    show("legal" if result.legal else "not legal:")
    for problem in result.problems:
        show(f"  {problem.text} [{problem.rule}]" + (f" Fix: {problem.fix}" if problem.fix else ""))
    if result.plan is not None:
        show_plan(result.plan)
        show(f"cost    {run.words}" if run is not None else "")
        show(sure_words(calibration.load(request.node, request.cluster), request))
    return EXIT_DONE
