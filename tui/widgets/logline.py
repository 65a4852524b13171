"""Owns how one log line looks: its writer muted, its level coloured, what is searched for marked. Pure."""

from __future__ import annotations

from gpt_tune.logs.lines import shown
from tui.widgets.logstore import Entry
from tui.widgets.paint import Line, Span

_ROLES = {"error": "bad", "warning": "warn"}


def painted(entry: Entry, words: str, bad: str, here: bool) -> list[Span]:
    """words: how many say the same. bad: a text whose lines are bad. here: the line that was jumped to."""
    line = shown(entry.text)
    role = "match" if here else "bad" if bad and bad in line else _ROLES.get(entry.facts.level, "")
    body = shown(entry.facts.body)
    cut = len(line) - len(body) if body and line.endswith(body) else 0
    spans: list[Span] = [(line[:cut], "match" if here else "muted"), (line[cut:], role)]
    return [*spans, (f" ‹{words}›", "accent")] if words else spans


def marked(spans: list[Span], wanted: str) -> Line:
    """The spans with every place of a lower-case text marked; it may begin in one span and end in another."""
    whole = "".join(text for text, _ in spans)
    lower = whole.lower()
    if not wanted or wanted not in lower or len(lower) != len(whole):
        return spans
    places: list[tuple[int, int]] = []
    found = lower.find(wanted)
    while found >= 0:
        places.append((found, found + len(wanted)))
        found = lower.find(wanted, found + len(wanted))
    out: list[Span] = []
    at = 0
    for text, role in spans:
        end = at + len(text)
        for start, stop in places:
            if stop <= at or start >= end:
                continue
            out.append((whole[at : max(start, at)], role))
            out.append((whole[max(start, at) : min(stop, end)], "match"))
            at = min(stop, end)
        out.append((whole[at:end], role))
        at = end
    return out
