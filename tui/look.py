"""Owns looking around for the first screen: clusters, runs, profiles, in words. Called in a thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tui.widgets.paint import Line
from tui.widgets.words import plural

if TYPE_CHECKING:
    from gpt_tune.workflows.draft import Draft
    from tui.engine import Engine


@dataclass(frozen=True, slots=True)
class Found:
    """fresh: a new draft. last: the unfinished one, or the last run's. words: by menu line."""

    fresh: Draft
    last: Draft | None
    words: dict[str, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)


def look(engine: Engine, unfinished: Draft | None) -> Found:
    """Everything the first screen says. Slow parts first fail soft: a missing Slurm is a fact, not an error."""
    fresh = _loaded(engine, engine.choices.start())
    words: dict[str, str] = {}
    words["clusters"] = ", ".join(fresh.clusters) or "none found"
    words["profiles"] = plural(len(engine.profiles.names()), "profile")
    last = unfinished
    if last is not None:
        words["last"] = _draft_words(engine, last)
    return Found(fresh, last, words, _here(fresh))


def _loaded(engine: Engine, draft: Draft) -> Draft:
    """The draft with its cluster looked at, so that the first step need not wait; as it was if that fails."""
    from gpt_tune.errors import UserError

    name = engine.choices.needs_cluster(draft)
    try:
        return engine.choices.load_cluster(draft, name) if name else draft  # type: ignore[no-any-return]
    except UserError:
        return draft  # the cluster step asks again, and says what is wrong


def _draft_words(engine: Engine, draft: Draft) -> str:
    return "unfinished: " + ", ".join(words for _, words in engine.choices.summary(draft).parts[:3])


def _here(fresh: Draft) -> list[Line]:
    slurm = [name for name in fresh.clusters if name != "local"]
    if slurm:
        return [
            [("Here  ", "muted"), (f"Slurm cluster {', '.join(slurm)}, and this machine.", "")],
            [("Next  ", "muted"), ("Enter starts a new run; every question has an answer filled in.", "")],
        ]
    return [
        [("Here  ", "muted"), ("no Slurm; jobs run on this machine.", "")],
        [
            ("Next  ", "muted"),
            ("Enter starts with a one-minute check run: real training, real log, live charts.", ""),
        ],
    ]
