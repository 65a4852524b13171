"""Owns the search: every candidate judged and ranked, the best explained, and the near misses too."""

from __future__ import annotations

import time

from gpt_tune.planner import misses, rank
from gpt_tune.planner.evaluate import Evaluator
from gpt_tune.planner.explain import plans_of
from gpt_tune.planner.judge import judge
from gpt_tune.planner.request import normalised
from gpt_tune.planner.types import PlanRequest, SearchResult


def search(request: PlanRequest) -> SearchResult:
    """The best layouts for a request with predictions and reasons, and the near misses with the change they need.

    When nothing fits there are no plans, and the rejected ones say what would. Raises UserError when the
    request contradicts itself.
    """
    started = time.perf_counter()
    evaluator = Evaluator(normalised(request))
    judged = judge(evaluator)
    fitting = judged.fitting
    rows = judged.legal[fitting]
    order = rank.best(judged.batch.take(rows), judged.score[fitting], evaluator.request.top)
    layouts = [judged.batch.row(int(rows[i])) for i in order]
    rejected = misses.nearest(evaluator, judged, layouts[0] if layouts else None)
    return SearchResult(
        plans=plans_of(evaluator, layouts),
        rejected=rejected,
        rejected_count=max(len(judged.batch) - len(fitting), len(rejected)),
        searched=max(len(judged.batch), len(rejected)),
        seconds=time.perf_counter() - started,
    )
