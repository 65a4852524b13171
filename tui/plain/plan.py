"""Owns the plain questions about the layout: one of the ranked ones, in full, compared, changed, or what was ruled out.

The same engine functions as the plan screen (gpt_tune.workflows.whatif, .ordering, .two_plans).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace

from gpt_tune import planner
from gpt_tune.errors import UserError
from gpt_tune.planner.types import Plan, PlanRequest, SearchResult
from gpt_tune.profiles.schema import LayoutChoice
from gpt_tune.workflows import choices, cost, ordering, sure, two_plans, whatif
from gpt_tune.workflows.binding import binding_words
from gpt_tune.workflows.draft import YOU, Draft
from tui.cli.compare_text import compared_lines
from tui.cli.plan_text import layout_words, show_plan
from tui.plain.ask import Asker, Item
from tui.widgets.words import plural

_GO, _BACK = "go", "back"
_CHANGES = "For example tp=8 zero=1 recompute=full batch=512 gpus=128."
_MISSES = 8


@dataclass(frozen=True, slots=True)
class _Found:
    """A question and what came of it."""

    request: PlanRequest
    result: SearchResult


def plan_page(draft: Draft, ask: Asker) -> tuple[Draft, int]:
    """The ranked layouts, the first the default; 1 to go on, -1 to go back."""
    order = "rank"
    while True:
        try:
            own = choices.plan_request(draft)
            result = planner.search(ordering.asked_for(own, order))
        except UserError as error:
            ask.say(str(error))
            return draft, -1
        found = _Found(ordering.on_the_gpus_found(own, result), result)
        answer = _ask(draft, found, order, ask)
        if answer == _BACK:
            return draft, -1
        if answer == _GO:
            return draft, 1
        if answer == "order":
            order = _order(order, ask)
        elif answer == "only":
            draft = _narrowed(draft, ask)
        elif answer in _VIEWS:
            _VIEWS[answer](found, ask)
        else:
            chosen = _chosen(found, answer, ask)
            if chosen is not None:
                done = _taken(draft, chosen, order, ask)
                if done is not None:
                    return done, 1


def _ask(draft: Draft, found: _Found, order: str, ask: Asker) -> str:
    """The menu of this moment."""
    result = found.result
    plans = ordering.in_order(result.plans, order)
    items = [
        Item(str(p.rank), f"{layout_words(p.layout, p.trainer)}: {p.step.seconds:.2f} s a step, {_memory(p)}")
        for p in plans
    ]
    tried = (
        [Item("try", "Try one that was ruled out, with the change that it needs")] if result.rejected else []
    )
    fixed = choices.fixed_by(draft)
    only = Item("only", "Only some layouts" + (f" ({fixed})" if fixed else ""))
    back = Item(_BACK, "Back")
    if not plans:
        ask.say("Nothing fits.")
        _misses(found, ask)
        without = [Item(_GO, "Go on without a plan")] if choices.plan_optional(draft) else []
        items = [back, *without, *tried, only]
    else:
        items += [
            Item("show", "Show one in full: cost, step by cause, memory by stage, reasons"),
            Item("compare", "Compare two"),
            Item("change", "Change numbers of one, and estimate it again"),
            *tried,
            Item("order", f"Another order than {ordering.ORDERS[order].label}"),
            only,
            back,
        ]
    best = f", {ordering.ORDERS[order].label} first" if order != "rank" else ", best first"
    title = f"\nPlan: {plural(result.searched, 'layout')} tried{best if plans else ''}"
    return ask.menu(title, items, str(plans[0].rank) if plans else _BACK)


def _memory(plan: Plan) -> str:
    """Short enough for a line of 80 columns."""
    limit = "" if plan.memory.limit_gib is None else f" of {plan.memory.limit_gib:.0f}"
    return f"{plan.memory.device_gib:.0f}{limit} GiB"


# --- what can be looked at


def _number(found: _Found, title: str, ask: Asker, default: str = "1") -> Plan | None:
    """One of the layouts by its number."""
    plans = {str(p.rank): p for p in found.result.plans}
    answer = ask.text(title, default, "", lambda text: None if text.strip() in plans else _which(plans))
    return plans.get(answer.strip())


def _which(plans: dict[str, Plan]) -> str:
    return f"Give a number from 1 to {len(plans)}."


def _show(found: _Found, ask: Asker) -> None:
    plan = _number(found, "Number", ask)
    if plan is not None:
        tell(found.request, plan, ask)


def tell(request: PlanRequest, plan: Plan, ask: Asker) -> None:
    """One layout in full."""
    said = io.StringIO()
    with redirect_stdout(said):
        show_plan(plan)
    ask.say(f"cost    {cost.cost_of(request, plan).words}")
    ask.say(f"binding {binding_words(plan)}")
    for line in said.getvalue().rstrip("\n").split("\n"):
        ask.say(line)
    ask.say(f"how sure: {sure.sure_words(request)}")


def _compare(found: _Found, ask: Asker) -> None:
    default = "1,2" if len(found.result.plans) > 1 else "1,1"
    answer = ask.text("Which two", default, "", lambda text: _wrong_pair(found.result, text))
    a, b = two_plans.of_search(found.result, answer)
    for line in compared_lines(a, b, (f"number {a.rank}", f"number {b.rank}")):
        ask.say(line)


def _wrong_pair(result: SearchResult, text: str) -> str | None:
    try:
        two_plans.of_search(result, text)
    except UserError as error:
        return str(error)
    return None


def _misses(found: _Found, ask: Asker) -> None:
    """The nearest layouts that were ruled out, with the change that each needs."""
    for number, near in enumerate(found.result.rejected[:_MISSES], start=1):
        instead = f" -> {near.fix}" if near.fix else ""
        ask.say(
            f"  {number}. {layout_words(near.layout, found.request.trainer)}: {near.text}{instead} [{near.rule}]"
        )


_VIEWS: dict[str, Callable[[_Found, Asker], None]] = {"show": _show, "compare": _compare}


# --- what can be asked differently


def _order(now: str, ask: Asker) -> str:
    items = [Item(name, f"{order.label}: {order.means}") for name, order in ordering.ORDERS.items()]
    return ask.menu("\nOrder", items, now)


def _narrowed(draft: Draft, ask: Asker) -> Draft:
    """The draft held to some keys of the layout; nothing frees it."""
    now = ordering.only_words(dict(draft.profile.layout.fixed))
    text = ask.text("Only layouts with", now, _CHANGES, lambda text: _wrong_keys(_with_keys(draft, text)))
    return _with_keys(draft, text)()


def _with_keys(draft: Draft, text: str) -> Callable[[], Draft]:
    def narrowed() -> Draft:
        fixed = ordering.only(text)
        free = choices.unfixed(draft)
        origins = {**free.origins, **({"layout.fixed": YOU} if fixed else {})}
        return replace(free, profile=replace(free.profile, layout=LayoutChoice(fixed)), origins=origins)

    return narrowed


def _wrong_keys(narrowed: Callable[[], Draft]) -> str | None:
    try:
        choices.plan_request(narrowed())
    except UserError as error:
        return str(error)
    return None


# --- taking one


def _chosen(found: _Found, answer: str, ask: Asker) -> tuple[PlanRequest, Plan] | None:
    """What the answer names: a ranked layout, one changed by hand, or a near miss with its change."""
    if answer == "change":
        plan = _number(found, "Change which number", ask)
        return None if plan is None else _change(found.request, plan, ask)
    if answer == "try":
        _misses(found, ask)
        most = min(len(found.result.rejected), _MISSES)
        numbers = [str(i) for i in range(1, most + 1)]
        said = ask.text(
            "Which one", "1", "", lambda t: None if t.strip() in numbers else f"Give 1 to {most}."
        )
        turned = whatif.mended(found.request, found.result.rejected[int(said) - 1])
        return _change(turned.request, turned.result.plan, ask, turned) if turned.result.plan else None
    plan = next((p for p in found.result.plans if str(p.rank) == answer), None)
    return None if plan is None else (found.request, plan)


def _change(
    request: PlanRequest, plan: Plan, ask: Asker, turned: whatif.Turned | None = None
) -> tuple[PlanRequest, Plan] | None:
    """Numbers of a layout changed until they are taken or dropped; each change is estimated at once."""
    legal = turned is None or turned.result.legal
    if turned is not None:
        _tell_trial(turned, ask)
    while True:
        ways = [Item("more", "Change numbers")]
        ways = [Item("take", "Take it"), *ways] if legal else ways
        default = (
            "take" if legal and turned is not None else "more"
        )  # what was not changed is not worth taking
        way = ask.menu(
            f"\n{layout_words(plan.layout, plan.trainer)}", [*ways, Item(_BACK, "Drop it")], default
        )
        if way == _BACK:
            return None
        if way == "take":
            return request, plan
        text = ask.text("Changes", "", _CHANGES, _wrong_changes)
        turned = whatif.typed_all(request, plan, text)
        _tell_trial(turned, ask)
        if turned.result.plan is not None:
            request, plan, legal = turned.request, turned.result.plan, turned.result.legal


def _wrong_changes(text: str) -> str | None:
    try:
        ordering.pairs(text)
    except UserError as error:
        return str(error)
    return None


def _tell_trial(turned: whatif.Turned, ask: Asker) -> None:
    for problem in turned.result.problems:
        ask.say(f"  not legal: {problem.text}" + (f" Instead: {problem.fix}" if problem.fix else ""))
    if turned.memory is not None:
        ask.say(f"  careful: {turned.memory.text} Instead: {turned.memory.fix}")
    if turned.result.plan is not None:
        tell(turned.request, turned.result.plan, ask)


def _taken(draft: Draft, chosen: tuple[PlanRequest, Plan], order: str, ask: Asker) -> Draft | None:
    """The draft with a layout; None, and a sentence, where the machine cannot take it."""
    request, plan = chosen
    for reason in plan.reasons:
        ask.say(f"  {reason.text}")
    try:
        return choices.choose(draft, ordering.as_chosen(plan, order), request)
    except UserError as error:
        ask.say(str(error))
        return None
