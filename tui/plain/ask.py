"""Owns asking one question in the terminal: with questionary, or with plain lines where that cannot work."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Check = Callable[[str], str | None]
EMPTY = "-"  # the answer that empties a text


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a menu: what is returned, what is shown."""

    value: str
    label: str


class Asker(Protocol):
    """How questions reach the user. EOFError or KeyboardInterrupt ends the session."""

    def menu(self, title: str, items: Sequence[Item], default: str) -> str: ...
    def text(
        self, title: str, default: str, help_line: str, check: Check, known: Sequence[str] = ()
    ) -> str: ...
    def yes(self, title: str, default: bool) -> bool: ...
    def say(self, line: str = "") -> None: ...


def asker() -> Asker:
    """questionary on a capable terminal; plain lines on a dumb one or when GPT_TUNE_PLAIN=text asks for them."""
    dumb = os.environ.get("TERM", "dumb") in ("dumb", "unknown", "")
    wants_text = os.environ.get("GPT_TUNE_PLAIN", "") == "text"
    if dumb or wants_text or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return Lines()
    from tui.plain.ask_questionary import Questionary

    return Questionary()


class Lines:
    """Plain lines: every choice has a number, Enter takes the default. Readable aloud, no cursor movement."""

    def __init__(self, read: Callable[[str], str] = input, write: Callable[[str], object] = print) -> None:
        self._read, self._write = read, write

    def say(self, line: str = "") -> None:
        self._write(line)

    def menu(self, title: str, items: Sequence[Item], default: str) -> str:
        self.say(title)
        numbers = {str(i): item.value for i, item in enumerate(items, 1)}
        for number, item in zip(numbers, items):
            mark = " (default)" if item.value == default else ""
            self.say(f"  {number}. {item.label}{mark}")
        while True:
            answer = self._read("Number, or Enter for the default: ").strip()
            if not answer:
                return default
            if answer in numbers:
                return numbers[answer]
            if answer in {i.value for i in items}:
                return answer
            self.say(f"{answer!r} is none of 1 to {len(items)}.")

    def text(self, title: str, default: str, help_line: str, check: Check, known: Sequence[str] = ()) -> str:
        self.say(help_line)
        shown = f" [{default}]" if default else ""
        while True:
            empties = f" ({EMPTY} empties it)" if default else ""
            answer = self._read(f"{title}{shown}{empties}: ").strip()
            answer = default if answer == "" else "" if answer == EMPTY else answer
            wrong = check(answer)
            if wrong is None:
                return answer
            self.say(wrong)

    def yes(self, title: str, default: bool) -> bool:
        shown = "Y/n" if default else "y/N"
        while True:
            answer = self._read(f"{title} [{shown}]: ").strip().lower()
            if not answer:
                return default
            if answer in ("y", "yes", "n", "no"):
                return answer.startswith("y")
            self.say("Answer y or n.")
