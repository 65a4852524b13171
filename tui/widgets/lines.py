"""Owns a scrolling block of painted lines: details, reasons, help. It wraps; it knows no markup."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.widgets.paint import Line, Painted, wrap
from tui.widgets.regions import changed_regions


class Lines(Painted, ScrollView, can_focus=False):
    """Painted lines, wrapped to the width. `indent` is how far wrapped lines start in."""

    DEFAULT_CSS = """
    Lines { height: auto; background: transparent; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    """

    def __init__(
        self,
        lines: Sequence[Line] = (),
        *,
        indent: int = 0,
        focusable: bool = False,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """focusable: the keyboard can reach it, to scroll what does not fit."""
        super().__init__(id=id, classes=classes)
        self.can_focus = focusable
        self._source: list[Line] = list(lines)
        self._rows: list[Line] = []
        self._indent = indent
        self._wrapped_at = 0

    def show(self, lines: Sequence[Line]) -> None:
        """Replace everything shown."""
        if list(lines) != self._source:
            self._source = list(lines)
            self._wrapped_at = 0
            before, width = self._rows, self.scrollable_content_region.width
            self._rewrap(width)
            # A new layout repaints the whole screen: only when the height really changes.
            if len(self._rows) != len(before) or self.scroll_offset.y or width <= 0:
                self.refresh(layout=len(self._rows) != len(before))
            elif regions := changed_regions(before, self._rows, width):
                self.refresh(*regions)

    def say(self, text: str, role: str = "") -> None:
        """Show one sentence."""
        self.show([[(text, role)]] if text else [])

    @property
    def plain(self) -> str:
        """What is shown, as plain text (for tests and copying)."""
        return "\n".join("".join(text for text, _ in line) for line in self._source)

    def _rewrap(self, width: int) -> None:
        if width <= 0 or width == self._wrapped_at:
            return
        self._wrapped_at = width
        self._rows = [row for line in self._source for row in wrap(line, width, self._indent)]
        self.virtual_size = Size(width, len(self._rows))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._rewrap(width)
        return len(self._rows)

    def on_resize(self, event: events.Resize) -> None:
        self._rewrap(self.scrollable_content_region.width)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        self._rewrap(width)  # a scroll bar that has just appeared takes a cell, and nothing announces that
        row = y + round(self.scroll_offset.y)
        return self.paint(self._rows[row] if row < len(self._rows) else [], width)
