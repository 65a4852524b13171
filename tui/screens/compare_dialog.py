"""Owns a window to choose several runs: a line to filter, a list, Enter turns one on or off, F2 is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from tui.screens.filter_window import FilterWindow
from tui.widgets.columns import Column
from tui.widgets.fields import Entry
from tui.widgets.keybar import KeyBar
from tui.widgets.lines import Lines
from tui.widgets.rows import Row, RowList

COLUMNS = (Column("", least=3), Column("", least=12, most=30), Column("", grow=True))


class CompareDialog(FilterWindow["tuple[str, ...] | None"]):
    """Gives the keys that are on, in the order they were chosen; None when left by Esc."""

    KEY_WORDS: ClassVar[dict[str, str]] = {"submit": "On or off"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f2", "done", "Draw them", tooltip="Draw the runs that are on"),
    ]

    def __init__(self, options: Sequence[tuple[str, str, str]], chosen: Sequence[str], most: int) -> None:
        super().__init__(options)
        self._chosen = [key for key in chosen if any(key == option[0] for option in options)]
        self._most = most

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Lines([[(f"Draw up to {self._most} other runs beside this one.", "strong")]])
            yield Entry(placeholder="type to filter")
            yield RowList(
                COLUMNS, self.rows(""), header=False, empty="no other run has a log", classes="-active"
            )
        yield KeyBar()

    def row_of(self, key: str, label: str, detail: str) -> Row:
        mark = f"[{'x' if key in self._chosen else ' '}]"
        return Row(key, (mark, label, [(detail, "muted")]))

    @on(RowList.Chosen)
    def _turned(self, event: RowList.Chosen) -> None:
        event.stop()
        if event.key in self._chosen:
            self._chosen.remove(event.key)
        elif len(self._chosen) < self._most:
            self._chosen.append(event.key)
        else:
            self.notify(f"{self._most} runs are the most that can be told apart.", markup=False)
        self.show_again()

    def action_done(self) -> None:
        self.dismiss(tuple(self._chosen))
