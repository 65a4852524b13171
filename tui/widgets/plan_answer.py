"""Owns the line over the ranked table: what was asked, how much was tried, in which order, what is fixed. Pure."""

from __future__ import annotations

from gpt_tune.planner.types import PlanRequest, SearchResult
from gpt_tune.words import seconds_words
from gpt_tune.workflows.ordering import Order
from tui.widgets.paint import Line, Span
from tui.widgets.words import plural


def answer_line(request: PlanRequest, result: SearchResult, order: Order, fixed: str, optional: bool) -> Line:
    """fixed: who fixed keys of the layout, in words. optional: the job can do without a plan, and there is none."""
    batch = f"batch {request.global_batch_size} x {request.seq_length}"
    size = f"{request.gpus:,} x {request.node.gpu.id}"
    tried = plural(result.searched, "layout")
    found = f"{len(result.plans)} of {tried}" if result.plans else f"none of {tried} fits"
    line: list[Span] = [
        (f"{request.model.id} on {size}, {batch}: ", "muted"),
        (found, "" if result.plans else "bad"),
        (f" in {seconds_words(result.seconds)}", "muted"),
    ]
    if order.label and (order.by is not None or order.objective != "step"):
        line.append((f"; {order.label} first", "accent"))
    if fixed:
        line.append((f"; {fixed}: f frees them", "accent"))
    if not result.plans:
        line.append(("; n goes on without a layout" if optional else "; Enter tries a change", "accent"))
    return line
