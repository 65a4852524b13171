"""Owns the order of plain questions: the wizard's steps, fields and defaults, one page after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.workflows import choices
from gpt_tune.workflows.draft import Draft, Field, Step
from tui.cli.table import clean
from tui.plain.ask import Asker, Item, asker
from tui.plain.plan import plan_page
from tui.plain.review import review

_GO, _MORE, _BACK, _QUIT = "go", "more", "back", "quit"
# Above this many options a menu is a list to search.
_LONGEST_MENU = 12


def run_plain(profile: str | None, dry_run: bool, ask: Asker | None = None) -> int:
    """The whole session; the exit code."""
    ask = ask or asker()
    draft = first_draft(profile)
    ask.say("gpt-tune: each page shows what is chosen. Enter goes on; Ctrl+C ends without submitting.")
    position = 0
    while True:
        draft = _looked_at(draft, ask)
        pages = choices.steps(draft)
        if position >= len(pages):
            position = len(pages) - 1
        page = pages[position]
        if page.skip:
            position += 1
            continue
        if page.id == "review":
            draft, outcome = review(draft, ask, dry_run)
            if outcome is not None:
                return outcome
            position = _previous(pages, position)
            continue
        draft, move = plan_page(draft, ask) if page.id == "plan" else _page(draft, page, ask)
        position = _previous(pages, position) if move < 0 else position + 1


def first_draft(profile: str | None) -> Draft:
    """A draft from a profile of that name, or from the defaults."""
    if profile is None:
        return choices.start()
    return choices.from_profile(profile)


def _looked_at(draft: Draft, ask: Asker) -> Draft:
    """The draft with its cluster looked at; where that fails, this machine's other choices are offered."""
    if draft.left:
        ask.say(clean(draft.left))
        draft = replace(draft, left="")
    name = choices.needs_cluster(draft)
    if name is None:
        return draft
    try:
        return choices.load_cluster(draft, name)
    except (SchedulerError, UserError) as error:
        ask.say(f"{name} cannot be used: {error}")
        others = [c for c in draft.clusters if c != name]
        return choices.put(draft, "cluster", others[0] if others else choices.PLAN_ONLY)


def _previous(pages: Sequence[Step], position: int) -> int:
    for i in range(position - 1, -1, -1):
        if not pages[i].skip:
            return i
    return 0


def _page(draft: Draft, page: Step, ask: Asker) -> tuple[Draft, int]:
    """One page of fields: change any, then go on or back."""
    everything = False
    while True:
        fields = choices.fields(draft, page.id)
        shown = [f for f in fields if everything or not f.advanced]
        missing = [f for f in shown if f.required and not f.value]
        for field in missing[:1]:
            draft = _ask_field(draft, field, ask)
        if missing:
            continue
        if why := choices.why_check(draft) if page.id == "training" else "":
            ask.say(why)
        answer = ask.menu(f"\n{page.title}", _items(shown, len(shown) < len(fields)), _GO)
        if answer == _GO:
            return (choices.save_site(draft) if page.id == "site" else draft), 1
        if answer == _BACK:
            return draft, -1
        if answer == _QUIT:
            raise KeyboardInterrupt
        if answer == _MORE:
            everything = True
            continue
        draft = _ask_field(draft, next(f for f in shown if f.key == answer), ask)
        if choices.needs_cluster(draft):
            draft = _looked_at(draft, ask)


def _items(fields: Sequence[Field], more: bool) -> list[Item]:
    items = [Item(_GO, "Go on")]
    for f in fields:
        unit = f" {f.unit}" if f.unit and f.value else ""
        source = f" ({f.source})" if f.source else ""
        items.append(Item(f.key, clean(f"Change {f.label}: {f.value or 'nothing'}{unit}{source}")))
    if more:
        items.append(Item(_MORE, "Show more settings"))
    return [*items, Item(_BACK, "Back"), Item(_QUIT, "Quit")]


def _ask_field(draft: Draft, field: Field, ask: Asker) -> Draft:
    """One question; the draft with its answer."""
    title = field.label + (f" in {field.unit}" if field.unit else "")
    if field.options and len(field.options) <= _LONGEST_MENU and field.kind in ("choice", "bool"):
        ask.say(field.help)
        items = [Item(o.value, clean(f"{o.label}  {o.detail}".rstrip())) for o in field.options]
        answer = ask.menu(title, items, field.value)
    else:
        known = [o.value for o in field.options]
        current = draft
        answer = ask.text(
            title, field.value, field.help, lambda text: choices.check(current, field.key, text), known
        )
    try:
        return choices.put(draft, field.key, answer)
    except UserError as error:
        ask.say(str(error))
        return draft
