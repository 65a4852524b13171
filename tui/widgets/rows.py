"""Owns a table one walks with the arrow keys: menus, models, layouts, runs. It draws only visible rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.widgets.columns import Column, Fitted, fit_columns, lay_out
from tui.widgets.paint import Cell, Painted, spans, text_of

MARK = "› "  # the chosen row is marked by a sign too, not by colour only
BLANK = "  "


@dataclass(frozen=True, slots=True)
class Row:
    """One row. key names it across updates, so that the cursor stays on it."""

    key: str
    cells: tuple[Cell, ...]


class RowList(Painted, ScrollView, can_focus=True):
    """Rows with a cursor. Posts Highlighted when the cursor moves and Chosen on Enter."""

    DEFAULT_CSS = """
    RowList { height: 1fr; background: transparent; overflow-x: hidden; scrollbar-size-vertical: 1; }
    """
    keys_name = "list"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "move(-100000000)", "First", show=False),
        Binding("end", "move(100000000)", "Last", show=False),
        Binding("enter", "choose", "Choose"),
    ]

    cursor: reactive[int] = reactive(0, always_update=False)

    @dataclass
    class Highlighted(Message):
        rows: RowList
        key: str

        @property
        def control(self) -> RowList:
            return self.rows

    @dataclass
    class Chosen(Message):
        rows: RowList
        key: str

        @property
        def control(self) -> RowList:
            return self.rows

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Sequence[Row] = (),
        *,
        header: bool = True,
        empty: str = "",
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._columns = tuple(columns)
        self._rows = list(rows)
        self._header = header
        self._empty = empty
        self._fitted = Fitted(tuple(0 for _ in columns))
        self._fitted_at = -1

    @property
    def rows(self) -> Sequence[Row]:
        return self._rows

    @property
    def key(self) -> str | None:
        """The key under the cursor."""
        return self._rows[self.cursor].key if 0 <= self.cursor < len(self._rows) else None

    @property
    def row_text(self) -> str:
        """The row under the cursor as plain text, cells apart by a tab."""
        if not 0 <= self.cursor < len(self._rows):
            return ""
        return "\t".join(text_of(spans(cell)) for cell in self._rows[self.cursor].cells)

    def show_rows(self, rows: Sequence[Row], *, columns: Sequence[Column] | None = None) -> None:
        """Replace the rows; the cursor stays on its key where that still exists."""
        key, count = self.key, len(self._rows)
        self._rows = list(rows)
        if columns is not None:
            self._columns = tuple(columns)
        self._fitted_at = -1
        keys = [row.key for row in self._rows]
        where = keys.index(key) if key in keys else min(self.cursor, max(len(keys) - 1, 0))
        self._measure()
        with self.prevent(RowList.Highlighted):
            self.cursor = where
        self.refresh(layout=len(self._rows) != count)
        if self.key != key and self.key is not None:
            self.post_message(self.Highlighted(self, self.key))

    def go_to(self, key: str) -> None:
        """Put the cursor on a key, when it is there."""
        for i, row in enumerate(self._rows):
            if row.key == key:
                self.cursor = i

    def action_move(self, by: int) -> None:
        if self._rows:
            self.cursor = min(max(self.cursor + by, 0), len(self._rows) - 1)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.size.height - 1 - self._header))

    def action_choose(self) -> None:
        if self.key is not None:
            self.post_message(self.Chosen(self, self.key))

    def watch_cursor(self, old: int, new: int) -> None:
        self._show_cursor()
        self.refresh()
        if self.key is not None:
            self.post_message(self.Highlighted(self, self.key))

    def _show_cursor(self) -> None:
        """Scroll as little as it takes to have the cursor in view."""
        room = self.size.height - self._header
        top = round(self.scroll_offset.y)
        if room > 0 and not top <= self.cursor < top + room:
            y = self.cursor if self.cursor < top else self.cursor - room + 1
            self.scroll_to(y=y, animate=False, force=True, immediate=True)

    def on_click(self, event: events.Click) -> None:
        row = event.y + round(self.scroll_offset.y) - self._header
        if event.y >= self._header and 0 <= row < len(self._rows):
            again = row == self.cursor
            self.cursor = row
            if again:
                self.action_choose()

    def on_resize(self, event: events.Resize) -> None:
        self._measure()
        self._show_cursor()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(len(self._rows), 1) + self._header

    def _measure(self) -> None:
        width = self.scrollable_content_region.width
        if width > 0 and width != self._fitted_at:
            room = width - len(MARK)
            self._fitted = fit_columns(self._columns, [row.cells for row in self._rows], room)
            self._fitted_at = width
        self.virtual_size = Size(width, len(self._rows) + self._header)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        self._measure()
        if self._header and y == 0:
            labels = [column.label for column in self._columns]
            return self.paint([(BLANK, ""), *lay_out(self._columns, self._fitted, labels, "head")], width)
        at = y - self._header + round(self.scroll_offset.y)
        if not self._rows and at == 0:
            return self.paint([(BLANK + self._empty, "muted")], width)
        if at >= len(self._rows):
            return self.paint([], width)
        line = lay_out(self._columns, self._fitted, self._rows[at].cells)
        if at != self.cursor:
            return self.paint([(BLANK, ""), *line], width)
        over = "cursor" if self.has_focus or self.has_class("-active") else ""
        return self.paint([(MARK, "key"), *line], width, over or "idle-cursor")
