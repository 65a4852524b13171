"""Owns finding runs again: a search in plain words, and the user's own tags and notes on runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpt_tune.errors import UserError, shown
from gpt_tune.ledger import Ledger, RunRecord

LONGEST_NOTE = 500
MOST_TAGS = 20
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
# Words that put a run's state the way people say it.
_LIVE = ("live", "active", "running")


def model_of(record: RunRecord) -> str:
    """The id of the model a run trains, or ""."""
    return str((record.shape or {}).get("id") or "")


def tags_of(record: RunRecord) -> tuple[str, ...]:
    """A run's tags as they are shown and searched: the user's own, then what gpt-tune marks (adopted, edited)."""
    marks = tuple(t for t in record.tags if "=" not in t)
    chains = ("chain",) if any(t.startswith("chain=") for t in record.tags) else ()
    sweeps = ("sweep",) if any(t.startswith("sweep=") for t in record.tags) else ()
    return tuple(dict.fromkeys((*record.user_tags, *marks, *chains, *sweeps)))


# What `key:word` of a search looks into.
_FIELDS: dict[str, Callable[[RunRecord], str]] = {
    "name": lambda r: r.name,
    "model": model_of,
    "state": lambda r: f"{r.state} {'live' if r.active else 'ended'}",
    "tag": lambda r: " ".join(tags_of(r)),
    "note": lambda r: r.note,
    "cluster": lambda r: r.cluster,
    "recipe": lambda r: r.recipe,
    "id": lambda r: " ".join((r.run_id, *r.job_ids)),
}


def search(records: Iterable[RunRecord], text: str) -> list[RunRecord]:
    """The runs that match every word of a search, in their order.

    `state:failed` looks into one field (name, model, state, tag, note, cluster, recipe, id), any other word into
    all of them, `-word` leaves out what matches. No text is wrong: an unknown `key:` is a plain word.
    """
    wanted = text.lower().split()
    return [r for r in records if all(_matches(r, word) for word in wanted)]


def _matches(record: RunRecord, word: str) -> bool:
    if word == "-":  # the start of a word that is still being typed
        return True
    if word.startswith("-"):
        return not _matches(record, word[1:])
    key, colon, value = word.partition(":")
    if colon and key in _FIELDS:
        found = _FIELDS[key](record).lower()
        if key == "state" and value in _LIVE:
            return record.active
        return value in found.split() if key == "tag" and value else value in found
    return any(word in read(record).lower() for read in _FIELDS.values())


def live_first(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Runs that may still change on top, each group in its order."""
    return sorted(records, key=lambda r: not r.active)


def note_problem(text: str) -> str | None:
    """Why a text is no note, in one sentence, or None."""
    if len(text) > LONGEST_NOTE:
        return f"A note has at most {LONGEST_NOTE} characters; this one has {len(text)}."
    if "\n" in text or "\r" in text or "\0" in text:
        return "A note is one line."
    return None


def set_note(ledger: Ledger, run_id: str, text: str) -> RunRecord:
    """Put a note on a run; an empty one takes it away. UserError for what no note can be."""
    text = text.strip()
    if problem := note_problem(text):
        raise UserError(problem, "Shorten it." if len(text) > LONGEST_NOTE else "Write it on one line.")
    return ledger.update(run_id, note=text)


def tags_problem(text: str) -> str | None:
    """Why words are no changes of tags (`fast -old`), in one sentence, or None."""
    try:
        parse_tags(text.split())
    except UserError as error:
        return str(error)
    return None


def parse_tags(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Tags to add and tags to take away: `+x` or `x`, and `-y`. UserError for a word that is no tag."""
    add: list[str] = []
    remove: list[str] = []
    for word in words:
        name = word[1:] if word[:1] in "+-" else word
        if not _TAG.fullmatch(name):
            raise UserError(
                f"{shown(word)} is no tag.",
                "Use up to 32 letters, digits, '.', '_' and '-', for example +baseline.",
            )
        (remove if word.startswith("-") else add).append(name)
    return add, remove


def change_tags(ledger: Ledger, run_id: str, words: Iterable[str]) -> RunRecord:
    """Add and remove tags of a run. UserError for a bad tag, or one to remove that is not there."""
    add, remove = parse_tags(words)
    with ledger.batch():  # read and written at once: another process may tag the same run
        record = ledger.get(run_id)
        missing = [t for t in remove if t not in record.user_tags]
        if missing:
            has = ", ".join(record.user_tags) or "none"
            raise UserError(f"{record.run_id} has no tag {shown(missing[0])}.", f"Its tags: {has}.")
        tags = tuple(dict.fromkeys(t for t in (*record.user_tags, *add) if t not in remove))
        if len(tags) > MOST_TAGS:
            raise UserError(f"A run has at most {MOST_TAGS} tags; this would be {len(tags)}.", "Remove some.")
        return ledger.update(run_id, user_tags=tags)


def to_json(record: RunRecord) -> dict[str, Any]:
    """What the user said about a run."""
    return {
        "run_id": record.run_id,
        "name": record.name,
        "tags": list(record.user_tags),
        "note": record.note or None,
    }
