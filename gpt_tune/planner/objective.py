"""Owns what a search looks for: checked objectives, batch sizes to compare, and numbers of GPUs to try."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from gpt_tune.errors import UserError, unknown_name
from gpt_tune.models.check import whole_number
from gpt_tune.planner.types import PlanRequest

OBJECTIVES = ("step", "gpus", "headroom")
MOST_BATCHES = 16
_LARGEST_BATCH = 10_000_000
_FEW = 7  # numbers of GPUs that are tried one by one


def checked(name: str, target_seconds: Any, within: Any) -> tuple[str, float | None, float]:
    """The objective with its numbers, or UserError."""
    if name not in OBJECTIVES:
        raise unknown_name("objective", name, OBJECTIVES)
    target = (
        None
        if target_seconds is None
        else _positive(target_seconds, "The target step time", "seconds, for example 5")
    )
    if target is not None and name != "gpus":
        raise UserError(
            f"A target step time of {target:g} s needs the objective gpus, not {name}.",
            "Add --objective gpus, or leave the target out.",
        )
    share = _share(within)
    return name, target, share


def _share(within: Any) -> float:
    """How much slower than the fastest may be, as a share. The messages speak of percent, as the option does."""
    example = "Give percent above 0, up to 100, for example --within 5 (in a program: within=0.05)."
    try:
        share = float(within)
    except (TypeError, ValueError) as error:
        raise UserError(f"The margin for slower layouts is {within!r}, not a number.", example) from error
    if not 0 < share <= 1:
        raise UserError(f"The margin for slower layouts is {100 * share:g} %.", example)
    return share


def _positive(value: Any, words: str, example: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise UserError(f"{words} is {value!r}, which is not a number.", f"Give {example}.") from error
    if not (math.isfinite(number) and number > 0):
        raise UserError(f"{words} is {value}.", f"Give a number above 0: {example}.")
    return number


def batch_sizes(text: Any, gpus: int) -> tuple[int, ...]:
    """`256`, `256,512,768` or `256..1024` (doubling, and multiples of the GPUs) as ascending sizes."""
    if not isinstance(text, str) or not ("," in text or ".." in text):
        return (_size(text),)
    if ".." in text:
        low_text, _, high_text = text.partition("..")
        low, high = _size(low_text), _size(high_text)
        if low > high:
            raise UserError(f"The range of batch sizes {text} runs backwards.", f"Write {high}..{low}.")
        sizes = _between(low, high, gpus)
    else:
        sizes = {_size(part) for part in text.split(",") if part.strip()}
    if not sizes:
        raise UserError(f"The list of batch sizes {text!r} names none.", "Write for example 256,512.")
    if len(sizes) > MOST_BATCHES:
        raise UserError(f"{len(sizes)} batch sizes are too many to compare.", f"Give at most {MOST_BATCHES}.")
    return tuple(sorted(sizes))


def _between(low: int, high: int, gpus: int) -> set[int]:
    """low, its doublings and high; and beside each the nearest multiple of the GPUs in the range."""
    sizes = {high}
    size = low
    while size <= high:
        sizes.add(size)
        size *= 2
    if len(sizes) > MOST_BATCHES // 2:
        sizes = set(sorted(sizes)[:: -(-2 * len(sizes) // MOST_BATCHES)]) | {high}
    multiples = {round(s / gpus) * gpus for s in sizes}
    return sizes | {m for m in multiples if low <= m <= high}


def _size(value: Any) -> int:
    number = whole_number(value.strip() if isinstance(value, str) else value, "The global batch size")
    if number > _LARGEST_BATCH:
        raise UserError(f"The global batch size {number} is too large.", f"Use {_LARGEST_BATCH} or less.")
    return number


def requests_by_batch(request: PlanRequest) -> list[PlanRequest]:
    """The request once for each batch size to compare."""
    if len(request.global_batch_sizes) < 2:
        return [request]
    free = {k: v for k, v in request.fixed.items() if k != "global_batch_size"}
    return [
        replace(
            request, global_batch_size=size, fixed={**free, "global_batch_size": size}, global_batch_sizes=()
        )
        for size in request.global_batch_sizes
    ]


def gpu_counts(request: PlanRequest) -> list[int]:
    """Numbers of GPUs to try, ascending, up to what there is: parts of a node, then 1, 2, 3, 4, 6, 8, .. nodes."""
    per_node = request.node.gpus_per_node
    counts = {1 << i for i in range(per_node.bit_length()) if (1 << i) <= per_node}
    nodes = 1
    while nodes * per_node <= request.gpus:
        counts |= {nodes * per_node, 3 * nodes // 2 * per_node}
        nodes *= 2
    counts.add(request.gpus)
    return sorted(c for c in counts if 0 < c <= request.gpus)


def between(below: int, gpus: int, per_node: int) -> list[int]:
    """Legal numbers of GPUs between one that is not enough and one that is, ascending; the middle one of many."""
    parts = range(below + 1, min(gpus, per_node + 1))
    whole = [n for n in range(below // per_node * per_node + per_node, gpus, per_node) if n > below]
    counts = sorted({*parts, *whole})
    return counts if len(counts) <= _FEW else [counts[len(counts) // 2]]
