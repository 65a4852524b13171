"""Owns a window to choose one of many: a line to filter, a list, Enter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical

from tui.screens.filter_window import FilterWindow
from tui.widgets.columns import Column
from tui.widgets.fields import Entry
from tui.widgets.keybar import KeyBar
from tui.widgets.rows import Row, RowList

COLUMNS = (Column("", least=12, most=40), Column("", grow=True))


class PickDialog(FilterWindow["str | None"]):
    """Gives the chosen value, or None when left by Esc."""

    KEY_WORDS: ClassVar[dict[str, str]] = {"submit": "Choose"}

    def __init__(self, options: Sequence[tuple[str, str, str]], value: str, typed: str = "") -> None:
        """typed: what was typed before the window opened."""
        super().__init__(options)
        self._value, self._before, self._chosen_before = value, typed, False
        self.opening = True

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Entry(placeholder="type to filter")
            yield RowList(COLUMNS, self.rows(""), header=False, empty="nothing matches", classes="-active")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(RowList).go_to(self._value)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """Take over what was typed before."""
        entry = self.query_one(Entry)
        entry.value, self.opening = self._before, False
        entry.cursor_position = len(entry.value)
        if self._chosen_before:
            best = self.best(entry.value, [row.key for row in self.rows(entry.value)])
            self.dismiss(best)

    def early(self, event: events.Key) -> None:
        """A key that arrives while the window opens: letters of a fast typist, and the Enter behind them."""
        if event.is_printable and not self._chosen_before:
            self._before += event.character or ""
        elif event.key == "enter":
            self._chosen_before = True

    def on_key(self, event: events.Key) -> None:
        if self.opening:
            event.stop()
            self.early(event)

    def row_of(self, key: str, label: str, detail: str) -> Row:
        return Row(key, (label or "(none)", [(detail, "muted")]))

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.dismiss(event.key)
