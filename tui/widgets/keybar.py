"""Owns the last line of every screen: the keys that work here, from the bindings themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from textual import events
from textual.strip import Strip

from tui.widgets.paint import Painted, Span

if TYPE_CHECKING:
    from textual.app import App
    from textual.binding import Binding
    from textual.screen import Screen

SHORT = {
    "escape": "Esc", "enter": "Enter", "question_mark": "?", "slash": "/", "tab": "Tab", "space": "Space",
    "left": "←", "right": "→", "up": "↑", "down": "↓", "ctrl+p": "^p",
}  # fmt: skip


_FUNCTION_KEY = re.compile(r"f\d+")
ORDER = {
    "Enter": -2,
    "↑↓": -1,
    "←→": -1,
    "Space": -1,
    "F2": 0.5,
    "Esc": 1,
    "?": 2,
}  # what goes on comes first, help last


def key_words(app: App[object], binding: Binding) -> str:
    """How a key is called on screen."""
    return binding.key_display or SHORT.get(binding.key) or _as_written(app.get_key_display(binding))


def _as_written(key: str) -> str:
    """`F2`, as on the keyboard and in every sentence; other keys as they are."""
    return key.upper() if _FUNCTION_KEY.fullmatch(key) else key


def named_key(owner: App[Any] | Screen[Any], name: str) -> str:
    """The key of an action of the app or of a screen by its name, as the user has it."""
    app: App[Any] = owner.app
    mine: dict[str, str] = getattr(getattr(app, "settings", None), "keys", {})
    for _, binding in owner._bindings.copy():
        if binding.id == name:
            key = mine.get(name, binding.key).partition(",")[0]
            return key_words(app, binding.with_key(key=key, key_display=None))
    return ""


def binding_words(screen: Screen[object], binding: Binding) -> str:
    """What a key does, in the words of this screen; empty where it does nothing useful."""
    words: dict[str, str] = getattr(screen, "KEY_WORDS", {})
    return words.get(binding.action, binding.description)


def shown_bindings(screen: Screen[object]) -> list[Binding]:
    """Bindings with show=True that work now, each action once, in order of nearness to the focus."""
    found: dict[str, Binding] = {}
    for _, binding, enabled, _ in screen.active_bindings.values():
        if binding.show and enabled:
            found.setdefault(binding.action, binding)
    return list(found.values())


class KeyBar(Painted):
    """One line of `key what`, cut to the width; help (`?`) is the last to be dropped."""

    DEFAULT_CSS = """
    KeyBar { dock: bottom; height: 1; background: $panel; padding: 0 1; }
    KeyBar:ansi { background: ansi_default; }
    """

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.refresh())
        self._ends: list[tuple[int, str]] = []

    def _items(self) -> list[tuple[str, str, str]]:
        items = [
            (key_words(self.app, b), binding_words(self.screen, b), b.key)
            for b in shown_bindings(self.screen)
            if binding_words(self.screen, b)
        ]
        items.sort(key=lambda item: ORDER.get(item[0], 0))
        while len(items) > 1 and sum(len(k) + len(w) + 3 for k, w, _ in items) - 2 > self.size.width:
            spare = [i for i, item in enumerate(items) if 0 <= ORDER.get(item[0], 0) < 1]
            items.pop(spare[-1] if spare else -2)
        return items

    def render_line(self, y: int) -> Strip:
        line: list[Span] = []
        self._ends = []
        end = 0
        for key, what, binding_key in self._items():
            line += [(key, "key"), (f" {what}", ""), ("  ", "")]
            end += len(key) + len(what) + 3
            self._ends.append((end, binding_key))
        return self.paint(line, self.size.width)

    def on_click(self, event: events.Click) -> None:
        for end, key in self._ends:
            if event.x - 1 < end:
                self.app.simulate_key(key)
                return
