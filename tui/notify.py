"""Owns telling the user that a run has started, failed or ended: words, the bell, the terminal's own message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpt_tune.ledger.record import RunRecord
    from tui.settings import Notify, When

_FAILED = frozenset({"FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED"})
_SILENT_TERMS = ("dumb", "linux", "unknown", "")  # would print such a message, or know nothing of it
_LONGEST = 120  # characters of a message


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to a run."""

    kind: When
    text: str


def changes(before: Sequence[RunRecord], after: Sequence[RunRecord]) -> list[Change]:
    """What happened between two looks, of the runs in both. What the user did himself is no news."""
    known = {r.run_id: r.state for r in before}
    found = []
    for record in after:
        was = known.get(record.run_id)
        if was is None or was == record.state:
            continue
        change = _change(record, was)
        if change is not None:
            found.append(change)
    return found


def _change(record: RunRecord, was: str) -> Change | None:
    job = f" (job {record.job_id})" if record.job_id else ""
    if record.state == "RUNNING" and was == "PENDING":
        return Change("start", f"{record.name}{job} has started.")
    if record.state in _FAILED:
        return Change("fail", f"{record.name}{job} has failed: {record.state}.")
    if record.state == "COMPLETED":
        return Change("end", f"{record.name}{job} has completed.")
    if record.state == "CANCELLED" and not record.cancel_requested:
        return Change("end", f"{record.name}{job} was cancelled, not from here.")
    return None


def sequence(text: str, settings: Notify, environ: Mapping[str, str]) -> str:
    """What is written to the terminal: the bell, and the message in the form this terminal understands."""
    bell = "\a" if settings.bell else ""
    kind: str = settings.desktop
    if kind == "auto":
        kind = _best(environ)
    safe = "".join(c for c in text if c.isprintable())[:_LONGEST]
    if kind == "osc9":
        # iTerm2, Windows Terminal, kitty, Ghostty. A digit first would be one of ConEmU's commands.
        message = f"\x1b]9;{safe if not safe[:1].isdigit() else ' ' + safe}\x07"
    elif kind == "osc777":  # urxvt, foot, VTE: a title and a body
        message = f"\x1b]777;notify;gpt-tune;{safe.replace(';', ',')}\x07"
    else:
        return bell
    if environ.get("TMUX"):  # tmux hands on what is wrapped, where it is allowed to
        message = "\x1bPtmux;" + message.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return message + bell


def _best(environ: Mapping[str, str]) -> str:
    term = environ.get("TERM", "")
    if term in _SILENT_TERMS:
        return "off"
    if environ.get("VTE_VERSION") or term.startswith(("rxvt", "foot")):
        return "osc777"
    return "osc9"
