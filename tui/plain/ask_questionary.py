"""Owns asking with questionary: arrow keys, completion, checks while typing."""

from __future__ import annotations

from collections.abc import Sequence

import questionary

from tui.plain.ask import EMPTY, Check, Item


class Questionary:
    """Questions on a capable terminal. Ctrl+C raises KeyboardInterrupt."""

    def say(self, line: str = "") -> None:
        print(line)

    def menu(self, title: str, items: Sequence[Item], default: str) -> str:
        choices = [questionary.Choice(title=i.label, value=i.value) for i in items]
        chosen = next((c for c in choices if c.value == default), choices[0])
        return str(questionary.select(title, choices=choices, default=chosen).unsafe_ask())

    def text(self, title: str, default: str, help_line: str, check: Check, known: Sequence[str] = ()) -> str:
        """The default is said, not typed in: what is typed then never hangs on to it. `-` empties."""

        def meant(answer: str) -> str:
            answer = answer.strip()
            return default if not answer else "" if answer == EMPTY else answer

        def validate(answer: str) -> bool | str:
            wrong = check(meant(answer))
            return True if wrong is None else wrong

        keeps = f" Enter keeps {default}; {EMPTY} empties it." if default else ""
        if known:
            print(f"({help_line}{keeps})")
            question = questionary.autocomplete(
                title, choices=list(known), validate=validate, match_middle=True, meta_information={}
            )
        else:
            question = questionary.text(title, instruction=f"({help_line}{keeps})", validate=validate)
        return meant(str(question.unsafe_ask()))

    def yes(self, title: str, default: bool) -> bool:
        return bool(questionary.confirm(title, default=default).unsafe_ask())
