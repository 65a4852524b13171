"""Owns a window to choose one of many: a line to filter, a list, Enter."""

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
from tui.widgets.rows import Row, RowList

COLUMNS = (Column("", least=12, most=40), Column("", grow=True))


class PickDialog(Window["str | None"]):
    """Gives the chosen value, or None when left by Esc."""

    DEFAULT_CSS = "PickDialog {" + BOX + " & Vertical { height: 80%; } & RowList { margin: 1 0 0 0; } }"
    KEY_WORDS: ClassVar[dict[str, str]] = {"submit": "Choose"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back", key_display="Esc"),
        Binding("up", "move(-1)", "Move", key_display="↑↓"),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "move(-8)", "Up 8", show=False),
        Binding("pagedown", "move(8)", "Down 8", show=False),
    ]

    def __init__(self, options: Sequence[tuple[str, str, str]], value: str) -> None:
        super().__init__()
        self._options = options
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Entry(placeholder="type to filter")
            yield RowList(COLUMNS, self._rows(""), header=False, empty="nothing matches", classes="-active")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(RowList).go_to(self._value)
        self.query_one(Entry).focus()

    def _rows(self, wanted: str) -> list[Row]:
        words = wanted.lower().split()
        return [
            Row(value, (label or "(none)", [(detail, "muted")]))
            for value, label, detail in self._options
            if all(word in f"{value} {label} {detail}".lower() for word in words)
        ]

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.query_one(RowList).show_rows(self._rows(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.query_one(RowList).action_choose()

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.dismiss(event.key)

    def action_move(self, by: int) -> None:
        self.query_one(RowList).action_move(by)
