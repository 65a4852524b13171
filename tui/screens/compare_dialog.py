"""Owns a window to choose several runs: a line to filter, a list, Enter turns one on or off, F2 is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from tui.screens.window import BOX, Window
from tui.widgets.columns import Column
from tui.widgets.fields import Entry
from tui.widgets.keybar import KeyBar
from tui.widgets.lines import Lines
from tui.widgets.rows import Row, RowList

COLUMNS = (Column("", least=3), Column("", least=12, most=30), Column("", grow=True))


class CompareDialog(Window["tuple[str, ...] | None"]):
    """Gives the keys that are on, in the order they were chosen; None when left by Esc."""

    DEFAULT_CSS = "CompareDialog {" + BOX + " & Vertical { height: 80%; } & RowList { margin: 1 0 0 0; } }"
    KEY_WORDS: ClassVar[dict[str, str]] = {"submit": "On or off"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f2", "done", "Draw them", tooltip="Draw the runs that are on"),
        Binding("escape", "dismiss(None)", "Back", key_display="Esc"),
        Binding("up", "move(-1)", "Move", key_display="↑↓"),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "move(-8)", "Up 8", show=False),
        Binding("pagedown", "move(8)", "Down 8", show=False),
    ]

    def __init__(self, options: Sequence[tuple[str, str, str]], chosen: Sequence[str], most: int) -> None:
        super().__init__()
        self._options = options
        self._chosen = [key for key in chosen if any(key == option[0] for option in options)]
        self._most = most

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Lines([[(f"Draw up to {self._most} other runs beside this one.", "strong")]])
            yield Entry(placeholder="type to filter")
            yield RowList(
                COLUMNS, self._rows(""), header=False, empty="no other run has a log", classes="-active"
            )
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(Entry).focus()

    def _rows(self, wanted: str) -> list[Row]:
        words = wanted.lower().split()
        return [
            Row(key, (self._mark(key), label, [(detail, "muted")]))
            for key, label, detail in self._options
            if all(word in f"{key} {label} {detail}".lower() for word in words)
        ]

    def _mark(self, key: str) -> str:
        return f"[{'x' if key in self._chosen else ' '}]"

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.query_one(RowList).show_rows(self._rows(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.query_one(RowList).action_choose()

    @on(RowList.Chosen)
    def _turned(self, event: RowList.Chosen) -> None:
        event.stop()
        if event.key in self._chosen:
            self._chosen.remove(event.key)
        elif len(self._chosen) < self._most:
            self._chosen.append(event.key)
        else:
            self.notify(f"{self._most} runs are the most that can be told apart.", markup=False)
        self.query_one(RowList).show_rows(self._rows(self.query_one(Entry).value))

    def action_done(self) -> None:
        self.dismiss(tuple(self._chosen))

    def action_move(self, by: int) -> None:
        self.query_one(RowList).action_move(by)
