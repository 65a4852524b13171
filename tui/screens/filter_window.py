"""Owns windows with a line to filter and a list below it: typing filters, the arrows move, Enter chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.screen import ScreenResultType
from textual.widgets import Input

from tui.screens.window import BOX, Window
from tui.widgets.fields import Entry
from tui.widgets.rows import Row, RowList


class FilterWindow(Window[ScreenResultType]):
    """Subclasses compose an Entry and a RowList, give its rows, and take RowList.Chosen."""

    DEFAULT_CSS = "FilterWindow {" + BOX + " & Vertical { height: 80%; } & RowList { margin: 1 0 0 0; } }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back", key_display="Esc"),
        Binding("up", "move(-1)", "Move", key_display="↑↓"),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "move(-8)", "Up 8", show=False),
        Binding("pagedown", "move(8)", "Down 8", show=False),
    ]

    def __init__(self, options: Sequence[tuple[str, str, str]]) -> None:
        """options: (key, label, detail)."""
        super().__init__()
        self._options = options

    def on_mount(self) -> None:
        self.query_one(Entry).focus()

    def row_of(self, key: str, label: str, detail: str) -> Row:
        """How an option is shown."""
        raise NotImplementedError

    def rows(self, wanted: str) -> list[Row]:
        """Those with every word of the filter."""
        words = wanted.lower().split()
        return [
            self.row_of(*option)
            for option in self._options
            if all(word in " ".join(option).lower() for word in words)
        ]

    def show_again(self) -> None:
        """The rows anew, by the filter as it stands."""
        self.query_one(RowList).show_rows(self.rows(self.query_one(Entry).value))

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        rows = self.query_one(RowList)
        rows.show_rows(self.rows(event.value))
        best = self.best(event.value, [row.key for row in rows.rows])
        if best is not None:
            rows.go_to(best)

    def best(self, wanted: str, keys: Sequence[str]) -> str | None:
        """The option to stand on while typing: the one of that very name, else one that begins so, else the first."""
        word = wanted.strip().lower()
        if not word or not keys:
            return None
        named = {key: {key.lower(), label.lower()} for key, label, _ in self._options if key in set(keys)}
        same = [key for key in keys if word in named.get(key, set())]
        begin = [key for key in keys if any(name.startswith(word) for name in named.get(key, set()))]
        return (same or begin or list(keys))[0]

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.query_one(RowList).action_choose()

    def action_move(self, by: int) -> None:
        self.query_one(RowList).action_move(by)
