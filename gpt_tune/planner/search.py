"""Owns the search: every candidate judged and ranked, the best explained, and the near misses too."""

from __future__ import annotations

import time
from dataclasses import replace

from gpt_tune.planner import misses, rank
from gpt_tune.planner.evaluate import Evaluator
from gpt_tune.planner.explain import plans_of
from gpt_tune.planner.judge import Judged, judge, together
from gpt_tune.planner.objective import between, gpu_counts, requests_by_batch
from gpt_tune.planner.request import normalised
from gpt_tune.planner.types import PlanRequest, SearchResult, Tried
from gpt_tune.planner.versus import told_apart


def search(request: PlanRequest) -> SearchResult:
    """The best layouts for a request with predictions and reasons, and the near misses with the change they need.

    When nothing fits there are no plans, and the rejected ones say what would. Raises UserError when the
    request contradicts itself.
    """
    started = time.perf_counter()
    asked = normalised(request)
    result = _fewest_gpus(asked) if asked.objective == "gpus" else _search(asked)
    return replace(result, seconds=time.perf_counter() - started)


def _search(request: PlanRequest) -> SearchResult:
    """The best layouts on all GPUs of the request."""
    evaluator = Evaluator(request)
    judged = together([judge(Evaluator(each)) for each in requests_by_batch(request)])
    fitting = judged.fitting
    rows = judged.legal[fitting]
    score = _score(request, evaluator, judged)
    batch = judged.batch.take(rows)
    order = rank.best(batch, score, request.top)
    if len(request.global_batch_sizes) > 1:
        order = rank.each_batch_first(batch, score, order, request.top)
    layouts = [judged.batch.row(int(rows[i])) for i in order]
    rejected = misses.nearest(evaluator, judged, layouts[0] if layouts else None)
    return SearchResult(
        plans=told_apart(request, plans_of(evaluator, layouts)),
        rejected=rejected,
        rejected_count=max(len(judged.batch) - len(fitting), len(rejected)),
        searched=max(len(judged.batch), len(rejected)),
        seconds=0.0,
    )


def _score(request: PlanRequest, evaluator: Evaluator, judged: Judged) -> rank.Floats:
    """What fitting layouts are ranked by, smallest first."""
    fitting = judged.fitting
    batch = judged.batch.take(judged.legal[fitting])
    score = rank.expected_seconds(judged.seconds, judged.oom)[fitting]
    share = evaluator.memory_share(judged.device_gib[fitting])
    score = score * rank.caution(batch, request.trainer, share, request.node.nvlink_domain_gpus)
    # Several batch sizes compare by the time a sequence takes; with one size that changes nothing.
    score = score / batch.global_batch_size * request.global_batch_size
    if request.objective == "headroom":
        return rank.headroom(score, judged.device_gib[fitting], request.within)
    return score


def _fewest_gpus(request: PlanRequest) -> SearchResult:
    """The smallest number of GPUs on which something fits and, if asked, is fast enough."""
    tried: list[Tried] = []
    best: SearchResult | None = None
    found = SearchResult((), (), 0, 0, 0.0)
    counts, searched, below = gpu_counts(request), 0, 0
    while counts:
        for gpus in counts:
            found = _search(replace(request, gpus=gpus, objective="step", target_seconds=None))
            searched += found.searched
            fastest = found.plans[0].step.seconds if found.plans else None
            if fastest is not None and (request.target_seconds is None or fastest <= request.target_seconds):
                best = replace(found, gpus=gpus)
                break
            below = gpus
            tried.append(Tried(gpus, fastest, _not_enough(gpus, fastest)))
        # The coarse steps leave numbers out: the fewest may lie between the last two.
        counts = between(below, best.gpus, request.node.gpus_per_node) if best and best.gpus else []
    if best is not None:
        return replace(best, searched=searched, tried=tuple(tried))
    return replace(found, plans=(), searched=searched, gpus=None, tried=tuple(tried))


def _not_enough(gpus: int, fastest: float | None) -> str:
    where = f"{gpus} GPU" + ("s" if gpus > 1 else "")
    if fastest is None:
        return f"On {where} nothing fits."
    return f"On {where} the fastest step takes {fastest:.3g} s."
