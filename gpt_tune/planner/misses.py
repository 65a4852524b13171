"""Owns the near misses of a search: which to show, why each lost, and the one change that would mend it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gpt_tune.layouts import legality
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.rule import Violation
from gpt_tune.planner import mend
from gpt_tune.planner.build import default_layout
from gpt_tune.planner.cure import cures
from gpt_tune.planner.evaluate import LARGEST_OOM_PROBABILITY, Evaluator
from gpt_tune.planner.judge import RULES, Judged, judge
from gpt_tune.planner.types import PlanRequest, Rejected

MOST = 50
# No rule fills the list alone.
_MOST_OF_A_RULE = 6
_MOST_OUT_OF_MEMORY = 20
# Doublings of the GPUs tried when nothing fits.
_DOUBLINGS = 7
_AXES = (
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_pipeline",
    "context_parallel",
    "expert_parallel",
    "zero_stage",
    "micro_batch_size",
    "recompute_granularity",
    "recompute_method",
    "recompute_layers",
    "sequence_parallel",
    "flash_attention",
)
# Near misses that differ in none of these are shown once.
_TELLING = (
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "zero_stage",
    "micro_batch_size",
    "recompute_granularity",
)
OOM_RULE = "out-of-memory"


def nearest(evaluator: Evaluator, judged: Judged, best: Layout | None) -> tuple[Rejected, ...]:
    """At most 50 near misses, nearest to the best plan first (without one: nearest to fitting)."""
    if len(judged.batch) == 0:
        return _impossible(evaluator)
    lost = np.flatnonzero(judged.oom > LARGEST_OOM_PROBABILITY)
    out_of_memory = judged.legal[lost]
    illegal = np.flatnonzero(judged.breaks == 1)
    if len(out_of_memory) + len(illegal) == 0:
        fewest = judged.breaks[judged.breaks > 0].min(initial=len(RULES))
        illegal = np.flatnonzero(judged.breaks == fewest)
    rows = np.concatenate([out_of_memory, illegal])
    overshoot = np.zeros(len(rows))
    overshoot[: len(lost)] = judged.device_gib[lost]
    if best is None:
        distance = np.where(np.arange(len(rows)) < len(lost), 0, 1)
    else:
        distance = _distance(judged.batch.take(rows), best)
    order = np.lexsort((overshoot, distance))
    chosen = _varied(judged, rows[order])
    return _in_words(evaluator, judged, chosen, nothing_fits=best is None)


def _distance(batch: LayoutBatch, best: Layout) -> NDArray[np.int64]:
    """How many keys differ from the best plan."""
    reference = LayoutBatch.of([best])
    return np.asarray(
        sum((getattr(batch, a) != getattr(reference, a)[0]).astype(np.int64) for a in _AXES), dtype=np.int64
    )


def _varied(judged: Judged, rows: NDArray[np.intp]) -> list[int]:
    """The first rows, but not more than a few of each rule, and none that differs in a detail only."""
    rows = rows[: 40 * MOST]
    batch = judged.batch.take(rows)
    details = np.stack([getattr(batch, a) for a in _TELLING]).T.tolist()
    counts: Counter[int] = Counter()
    seen: set[tuple[int, ...]] = set()
    chosen: list[int] = []
    for row, detail in zip(rows, details):
        rule = int(judged.first[row])
        key = (rule, *detail)
        if key not in seen and counts[rule] < (_MOST_OUT_OF_MEMORY if rule < 0 else _MOST_OF_A_RULE):
            seen.add(key)
            counts[rule] += 1
            chosen.append(int(row))
        if len(chosen) == MOST:
            break
    return chosen


def _in_words(
    evaluator: Evaluator, judged: Judged, rows: list[int], nothing_fits: bool
) -> tuple[Rejected, ...]:
    lost = [row for row in rows if judged.breaks[row] == 0]
    fixes = dict(zip(lost, mend.memory_fixes(evaluator, judged.batch.take(np.array(lost, dtype=np.intp)))))
    enough = _enough_gpus(evaluator) if nothing_fits and lost else ""
    illegal = {row: judged.batch.row(row) for row in rows if row not in fixes}
    broken = _faults(evaluator, judged, illegal)
    fits = None if nothing_fits else _fits
    cured = dict(zip(broken, cures(evaluator.request, [*illegal.values()], [*broken.values()], fits)))
    found = []
    for row in rows:
        if row in cured and not cured[row].fits:
            continue  # out of memory once it is legal: two changes away
        if row in broken:
            fault: Violation = broken[row]
            found.append(Rejected(illegal[row], fault.rule, fault.text, cured[row].words))
            continue
        i = int(np.searchsorted(judged.legal, row))
        text = _memory_text(evaluator, judged.device_gib[i], judged.oom[i])
        fix = fixes[row] or enough or mend.nearest_fitting(judged, row)
        found.append(Rejected(judged.batch.row(row), OOM_RULE, text, fix))
    return tuple(found)


def _fits(request: PlanRequest, layouts: Sequence[Layout]) -> list[bool]:
    """Which layouts are more likely to fit into memory than not."""
    oom = Evaluator(request).oom_probability(LayoutBatch.of(layouts))[0]
    return [bool(chance <= LARGEST_OOM_PROBABILITY) for chance in oom]


def _faults(evaluator: Evaluator, judged: Judged, illegal: Mapping[int, Layout]) -> dict[int, Violation]:
    """The rule each layout breaks, in words; of several, the one that stands in the way of most."""
    rows = np.array([*illegal], dtype=np.intp)
    if len(rows) == 0:
        return {}
    which = judged.first[rows]
    if np.any(judged.breaks[rows] > 1):
        batch = judged.batch.take(rows)
        masks = np.stack([rule.mask(batch, evaluator.setting) for rule in RULES])
        which = np.argmax(masks * masks.sum(axis=1, keepdims=True), axis=0)
    return {row: RULES[int(i)].violation(x, evaluator.setting) for (row, x), i in zip(illegal.items(), which)}


def _memory_text(evaluator: Evaluator, device_gib: float, probability: float) -> str:
    limit = (evaluator.request.node.gpu.memory_mib_driver or 0) / 1024
    return (
        f"It needs about {device_gib:.0f} GiB of {limit:.0f} GiB: it runs out of memory with a chance of "
        f"{probability:.0%}."
    )


def _enough_gpus(evaluator: Evaluator) -> str:
    """The number of GPUs, doubled until something fits, as words."""
    request = evaluator.request
    per_node = request.node.gpus_per_node
    free = {k: v for k, v in request.fixed.items() if k != "data_parallel"}
    gpus = request.gpus
    for _ in range(_DOUBLINGS):
        gpus = gpus * 2 if gpus * 2 <= per_node else -(-gpus * 2 // per_node) * per_node
        whole = -(-request.global_batch_size // gpus) * gpus
        bigger = replace(
            request, gpus=gpus, global_batch_size=whole, fixed={**free, "global_batch_size": whole}
        )
        if len(judge(Evaluator(bigger)).fitting):
            batch = f" with global_batch_size={whole}" if whole != request.global_batch_size else ""
            return f"{gpus} GPUs{batch}"
    return f"no number of GPUs up to {gpus}: a smaller model, a shorter sequence or fewer fixed keys"


def _impossible(evaluator: Evaluator) -> tuple[Rejected, ...]:
    """The fixed keys leave no layout at all: what is wrong with the one they come nearest to."""
    layout = default_layout(evaluator.request)
    found = legality.problems(layout, evaluator.setting)
    fixes = cures(evaluator.request, [layout] * len(found), found)
    return tuple(Rejected(layout, v.rule, v.text, cure.words) for v, cure in zip(found, fixes))
