"""Owns looking around for the first screen: clusters, runs, profiles, in words. Called in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpt_tune.errors import UserError
from tui.states import ago
from tui.widgets.paint import Line
from tui.widgets.words import plural

if TYPE_CHECKING:
    from gpt_tune.ledger.record import RunRecord
    from gpt_tune.workflows.draft import Draft
    from tui.engine import Engine


@dataclass(frozen=True, slots=True)
class Found:
    """fresh: a new draft. last: the unfinished one, or the last run's. words: by menu line.
    runs: as the ledger last heard of them."""

    fresh: Draft
    last: Draft | None
    words: dict[str, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    runs: Sequence[RunRecord] = ()


def look(engine: Engine, unfinished: Draft | None) -> Found:
    """Everything the first screen says. A cluster that does not answer is said, not raised."""
    fresh = _loaded(engine, engine.choices.start())
    runs, kept = _runs(engine)
    words = {
        "clusters": ", ".join(fresh.clusters) or "none found",
        "last": "nothing yet: here will be the last run's choices",
        "runs": "none yet",
        "profiles": plural(len(engine.profiles.names()), "profile"),
    }
    last = unfinished
    if last is not None:
        words["last"] = _draft_words(engine, last)
    elif own := next((r for r in runs if engine.adopt.TAG not in r.tags), None):
        last = _again(engine, own)
        words["last"] = f"with the choices of {own.name}, {ago(own.created_at)}"
    if runs:
        words["runs"] = run_words(runs)
    checks = engine.doctor.here()
    if engine.doctor.needs_attention(checks) or not runs:  # news, or the first time here
        words["doctor"] = engine.doctor.in_words(checks)
    return Found(fresh, last, words, [*kept, *_here(fresh)], runs)


def _runs(engine: Engine) -> tuple[Sequence[RunRecord], list[Line]]:
    """The runs, or why there are none to be had: planning needs no ledger."""
    try:
        return engine.runs(), []
    except UserError as error:
        way = (
            "Planning works, submitting does not: set XDG_STATE_HOME and XDG_CONFIG_HOME to folders of yours."
        )
        return (), [[("!     ", "bad"), (error.message, "bad")], [("      ", ""), (way, "")]]


def _loaded(engine: Engine, draft: Draft) -> Draft:
    """The draft with its cluster looked at, so that the first step need not wait; as it was if that fails."""
    name = engine.choices.needs_cluster(draft)
    try:
        return engine.choices.load_cluster(draft, name) if name else draft
    except UserError:
        return draft  # the cluster step asks again, and says what is wrong


def _again(engine: Engine, record: RunRecord) -> Draft | None:
    try:
        return engine.draft_of_run(record)
    except UserError:
        return None  # the profile it was made from is of another version


def _draft_words(engine: Engine, draft: Draft) -> str:
    return "unfinished: " + ", ".join(words for _, words in engine.choices.summary(draft).parts[:3])


def run_words(runs: Sequence[RunRecord]) -> str:
    """How many live, which, how many ended."""
    live = [r for r in runs if r.active]
    ended = plural(len(runs) - len(live), "ended", "ended")
    if not live:
        return f"none live, {ended}"
    return f"{len(live)} live ({live[0].name} {live[0].state}{', …' if len(live) > 1 else ''}), {ended}"


def _here(fresh: Draft) -> list[Line]:
    """What there is, and one suggested next step."""
    slurm = [name for name in fresh.clusters if name != "local"]
    check = "Enter starts a one-minute check: real training, log and charts."
    if slurm:
        here = f"Slurm cluster {', '.join(slurm)}."
        then = check if fresh.recipe == "smoke" else "Enter starts a new run; every answer is filled in."
    else:
        here, then = "no Slurm: jobs run on this machine.", check
    if fresh.trouble:
        here = "this machine; Slurm is set up but silent."
    trouble: list[Line] = [[("!     ", "bad"), (fresh.trouble, "bad")]] if fresh.trouble else []
    return [[("Here  ", "muted"), (here, "")], *trouble, [("Next  ", "muted"), (then, "")]]
