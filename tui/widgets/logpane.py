"""Owns the view of a log: a bounded store of raw lines, styled only when a line is on screen.

Lines arrive in batches from whoever follows the file. The view stays at the end only while it is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.widgets.paint import Line, Painted, clean

# Trainers pad their figures to columns 15 wide; on 80 columns the blanks would hide the figures. Indents stay.
_BLANKS = re.compile(r"(?<=\S) {2,}")
MAX_LINES = 20_000
MAX_CHARACTERS = 4_000  # of one line; a 1 MB line would otherwise be measured at every frame


def plain_level(line: str) -> str:
    """The role of a whole line when nobody supplies a better rule."""
    return ""


class LogPane(Painted, ScrollView, can_focus=True):
    """The log. `follow` is on while the view stands at the end."""

    DEFAULT_CSS = """
    LogPane { height: 1fr; background: transparent; scrollbar-size: 1 1; overflow-y: scroll; overflow-x: hidden; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "Follow"),
        Binding("n", "next_match(1)", "Next match", show=False),
        Binding("N", "next_match(-1)", "Previous match", show=False),
        Binding("left", "shift(-16)", "Left", show=False),
        Binding("right", "shift(16)", "Right", show=False),
    ]

    follow: reactive[bool] = reactive(True)
    unseen: reactive[int] = reactive(0)

    class Moved(Message):
        """Follow state, number of unseen lines or search position changed."""

    def __init__(
        self, *, level: Callable[[str], str] = plain_level, max_lines: int = MAX_LINES, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._level = level
        self._max_lines = max_lines
        self._lines: list[str] = []
        self._dropped = 0  # lines no longer held; line numbers are absolute
        self._wanted = ""
        self._match: int | None = None
        self._shift = 0

    # --- content

    @property
    def lines(self) -> Sequence[str]:
        return self._lines

    @property
    def dropped(self) -> int:
        """Lines that were shown once and are no longer held."""
        return self._dropped

    @property
    def searching(self) -> str:
        return self._wanted

    def add(self, lines: Sequence[str]) -> None:
        """Append a batch."""
        if not lines:
            return
        at_end = self.at_end
        self._lines += [
            line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS] + "…" for line in lines
        ]
        excess = len(self._lines) - self._max_lines
        if excess > 0:
            del self._lines[:excess]
            self._dropped += excess
        self._resize_view()
        if self.follow and at_end:
            self._to_end()
        else:
            self.unseen += len(lines)
            if excess > 0:
                self.scroll_to(y=max(self.scroll_y - excess, 0), animate=False, force=True, immediate=True)
        self.refresh()

    def clear(self) -> None:
        self._lines.clear()
        self._dropped = self.unseen = 0
        self._match = None
        self._resize_view()
        self.refresh()

    def _resize_view(self) -> None:
        """Tell the scroll bar how many lines there are, without the layout that assigning would start.

        The scroll bar is always there and the widget's own size never changes, so nothing can move; a layout
        for each batch would repaint the whole screen.
        """
        size = Size(self.scrollable_content_region.width, len(self._lines))
        self.set_reactive(LogPane.virtual_size, size)
        self.vertical_scrollbar.window_virtual_size = size.height

    # --- moving

    @property
    def at_end(self) -> bool:
        return self.scroll_offset.y >= self.max_scroll_y - 1

    def _to_end(self) -> None:
        self.scroll_to(y=self.max_scroll_y, animate=False, force=True, immediate=True)
        self.unseen = 0

    def on_resize(self, event: events.Resize) -> None:
        """A view that follows stays at the end when something above it grows."""
        self._resize_view()
        if self.follow:
            self._to_end()

    def action_follow(self) -> None:
        """Follow on jumps to the end; follow off leaves the view where it is."""
        self.follow = not (self.follow and self.at_end)
        if self.follow:
            self._to_end()

    def action_shift(self, by: int) -> None:
        self._shift = max(0, min(self._shift + by, MAX_CHARACTERS))
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value < old_value and not self.at_end:
            self.follow = False
        elif self.at_end:
            self.follow = True
            self.unseen = 0

    def watch_follow(self) -> None:
        self.post_message(self.Moved())

    def watch_unseen(self) -> None:
        self.post_message(self.Moved())

    def go_to_line(self, number: int) -> bool:
        """Show an absolute line number (0-based since the log was opened); False when no longer held."""
        row = number - self._dropped
        if not 0 <= row < len(self._lines):
            return False
        self._match = row + self._dropped
        self.follow = False
        self.scroll_to(y=max(row - self.size.height // 3, 0), animate=False, force=True, immediate=True)
        self.refresh()
        return True

    def go_to_text(self, text: str) -> bool:
        """Show the first held line that contains a text; False when none does."""
        wanted = clean(text).strip()[:200]
        for row, line in enumerate(self._lines):
            if wanted and wanted in clean(line):
                return self.go_to_line(row + self._dropped)
        return False

    # --- searching

    def search(self, wanted: str) -> int:
        """Find a plain text, ignoring case; shows the last match and returns how many lines match."""
        self._wanted = wanted.lower()
        self._match = None
        if not self._wanted:
            self.refresh()
            return 0
        count = sum(self._wanted in line.lower() for line in self._lines)
        if count:
            self._seek(len(self._lines) - 1, -1)
        self.refresh()
        return count

    def action_next_match(self, by: int) -> None:
        if self._wanted:
            start = self._match - self._dropped if self._match is not None else len(self._lines)
            self._seek(start + by, by)

    def _seek(self, row: int, by: int) -> None:
        while 0 <= row < len(self._lines):
            if self._wanted in self._lines[row].lower():
                self.go_to_line(row + self._dropped)
                return
            row += by

    # --- drawing

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        row = y + round(self.scroll_offset.y)
        if row >= len(self._lines):
            return self.paint([], width)
        line = _BLANKS.sub(" ", clean(self._lines[row]))
        role = self._level(line)
        if self._match == row + self._dropped and not self._wanted:
            role = "match"
        strip = Strip(
            [Segment(text, self.role_style(part)) for text, part in self._marked(line, role) if text]
        )
        if self._shift:
            strip = strip.crop(self._shift, self._shift + width)
        return strip.adjust_cell_length(width, self.rich_style)

    def _marked(self, line: str, role: str) -> Line:
        if not self._wanted or self._wanted not in (lower := line.lower()) or len(lower) != len(line):
            return [(line, role)]
        parts: list[tuple[str, str]] = []
        start = 0
        while (found := lower.find(self._wanted, start)) >= 0:
            stop = found + len(self._wanted)
            parts += [(line[start:found], role), (line[found:stop], "match")]
            start = stop
        return [*parts, (line[start:], role)]
