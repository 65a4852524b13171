"""Owns showing the lines of one file: numbers, scrolling, long lines going on below. It draws only visible rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.widgets.file_rows import FileRow, folded
from tui.widgets.paint import Line, Painted, Span, text_of

NUMBER = 5  # cells for the line number


class FileView(Painted, ScrollView, can_focus=True):
    """The rows of one file; long lines go on below, without a number."""

    DEFAULT_CSS = """
    FileView { height: 1fr; background: transparent; scrollbar-size: 1 1; overflow-x: hidden; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "screen.file(-1)", "File", key_display="←→"),
        Binding("right,tab", "screen.file(1)", "Next file", show=False),
        Binding("shift+tab", "screen.file(-1)", "Previous file", show=False),
        Binding("up", "scroll_up", "Scroll", key_display="↑↓"),
        Binding("down", "scroll_down", "Down", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._source: list[FileRow] = []
        self._rows: list[tuple[str, Line]] = []  # number or "", spans
        self._folded_at = 0

    @property
    def plain(self) -> str:
        return "\n".join(text_of(line) for _, line, _ in self._source)

    def show_rows(self, rows: Sequence[FileRow], stay: bool = False) -> None:
        """Show other rows from the top; stay: the same file, which has changed a little."""
        self._source = list(rows)
        self._folded_at = 0
        self._fold()
        if not stay:
            self.scroll_to(y=0, animate=False, force=True, immediate=True)
        self.refresh()

    def seek(self, mark: str) -> bool:
        """Scroll to the next row with this in front of it, from the one at the top on; whether there is one."""
        top = round(self.scroll_offset.y)
        found = [y for y, (number, _) in enumerate(self._rows) if number == mark]
        if not found:
            return False
        # A line of context stays above it.
        at = next((y for y in found if y - 1 > top), found[0])
        self.scroll_to(y=max(at - 1, 0), animate=False, force=True, immediate=True)
        return True

    def on_resize(self, event: events.Resize) -> None:
        self._fold()

    def _fold(self) -> None:
        width = max(self.scrollable_content_region.width - NUMBER, 10)
        if width == self._folded_at:
            return
        self._folded_at = width
        self._rows = folded(self._source, width)
        self.virtual_size = Size(width + NUMBER, len(self._rows))

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        row = y + round(self.scroll_offset.y)
        if row >= len(self._rows):
            return self.paint([], width)
        number, line = self._rows[row]
        head: Span = (f"{number:>{NUMBER - 1}} ", "bad" if number == "!" else "muted")
        return self.paint([head, *line], width)
