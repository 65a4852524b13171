"""Owns the orders in which ranked layouts can be shown, and narrowing a search to layouts with certain keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpt_tune.errors import UserError, unknown_name
from gpt_tune.layouts.choices import ACCUMULATION, CHOICES, parse_fix
from gpt_tune.planner.types import Plan, PlanRequest, SearchResult
from gpt_tune.workflows.turnables import ASKED, BATCH, LENGTH, NAMES


@dataclass(frozen=True, slots=True)
class Order:
    """One order. objective: what the search itself looks for; by: how its layouts are then sorted, None as ranked."""

    label: str
    means: str
    by: Callable[[Plan], Any] | None = None
    objective: str = "step"


ORDERS: dict[str, Order] = {
    "rank": Order("the planner's ranking", "fastest, cautious about memory"),
    "step": Order("step time", "fastest first, nothing else counts", lambda p: p.step.seconds),
    "memory": Order("memory", "least memory per GPU first", lambda p: p.memory.device_gib),
    "risk": Order(
        "risk",
        "least risk of running out first",
        lambda p: (round(p.memory.oom_probability or 0.0, 2), p.step.seconds),
    ),
    "headroom": Order("most memory left", "new search: at most 5 % slower", None, "headroom"),
    "gpus": Order("fewest GPUs", "new search: fewest that it fits on", None, "gpus"),
}
# Those that only sort what a search has found.
SORTS = tuple(name for name, order in ORDERS.items() if order.objective == "step")

_SHORT = {
    "tp": "tensor_parallel", "pp": "pipeline_parallel", "vp": "virtual_pipeline", "vpp": "virtual_pipeline",
    "cp": "context_parallel", "ep": "expert_parallel", "dp": "data_parallel", "sp": "sequence_parallel",
    "zero": "zero_stage", "mbs": "micro_batch_size", "gas": "gradient_accumulation_steps", "layers": "recompute.layers",
    "method": "recompute.method", "flash": "flash_attention", "batch": BATCH, "length": LENGTH, "grads": ACCUMULATION,
}  # fmt: skip


def in_order(plans: Sequence[Plan], name: str) -> tuple[Plan, ...]:
    """The plans in one of ORDERS; each keeps its rank. UserError for an order that is none."""
    if name not in ORDERS:
        raise unknown_name("order", name, ORDERS)
    by = ORDERS[name].by
    return tuple(plans) if by is None else tuple(sorted(plans, key=by))


def asked_for(request: PlanRequest, name: str) -> PlanRequest:
    """The question as an order asks it."""
    return replace(request, objective=ORDERS[name].objective)


def on_the_gpus_found(request: PlanRequest, result: SearchResult) -> PlanRequest:
    """The question that the plans answer where the search itself chose the number of GPUs."""
    return request if result.gpus is None else replace(request, gpus=result.gpus)


def as_chosen(plan: Plan, name: str) -> Plan:
    """A plan as it is taken: the first of another objective is nobody's first but the user's, so it is fixed."""
    return plan if ORDERS[name].objective == "step" else replace(plan, rank=0)


def pairs(text: str) -> list[tuple[str, str]]:
    """`tp=8 batch=512` as (key, value) in order; short names and those of --fix. UserError says why not."""
    found = []
    for word in text.replace(",", " ").split():
        key, sign, value = word.partition("=")
        said = key.strip().lower()
        name = _SHORT.get(said, said)
        if name not in (*CHOICES, *ASKED, "recompute"):
            raise unknown_name("layout key", key, [*_SHORT, "recompute", *CHOICES])
        if not sign:
            raise UserError(f"{word!r} is not KEY=VALUE.", "Write for example tp=8 zero=1 recompute=none.")
        found.append((name, value))
    return found


def only(text: str) -> dict[str, Any]:
    """What `pairs` reads, as keys that a search is held to. UserError for numbers of the question itself."""
    asked = pairs(text)
    for name, _ in asked:
        if name in ASKED:
            raise UserError(
                f"{NAMES[name][0]} belongs to the question.",
                "Turn it in the what-if, or change it on its own step.",
            )
    return parse_fix([f"{name}={value}" for name, value in asked])


def only_words(fixed: dict[str, Any]) -> str:
    """Fixed keys as they are typed: tp=8 zero=1."""
    short = {name: key for key, name in reversed(_SHORT.items())}
    said = []
    for key, value in fixed.items():
        word = str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
        said.append(f"{short.get(key, key)}={word}")
    return " ".join(said)
