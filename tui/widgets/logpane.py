"""Owns the view of a log: lines are styled only when they are on screen, and it stays at the end only while there.

Lines arrive in batches from whoever follows the file; `logstore` holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.widgets.logstore import MAX_CHARACTERS, MAX_LINES, LogStore, shown
from tui.widgets.paint import Line, Painted


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
        Binding("z", "wrap", "Wrap", show=False, tooltip="Wrap rows of figures too, or not"),
    ]

    follow: reactive[bool] = reactive(True)
    unseen: reactive[int] = reactive(0)

    class Moved(Message):
        """Follow state, number of unseen lines or search position changed."""

    def __init__(self, *, max_lines: int = MAX_LINES, id: str | None = None) -> None:
        super().__init__(id=id)
        self._bad = ""
        self._store = LogStore(max_lines)
        self._wanted = ""
        self._match: int | None = None
        self._shift = 0

    # --- content

    @property
    def lines(self) -> Sequence[str]:
        return self._store.lines

    @property
    def dropped(self) -> int:
        """Lines that were shown once and are no longer held."""
        return self._store.dropped

    @property
    def searching(self) -> str:
        return self._wanted

    def add(self, lines: Sequence[str]) -> None:
        """Append a batch."""
        if not lines:
            return
        at_end = self.at_end
        gone = self._store.add(lines)
        self._resize_view()
        if self.follow and at_end:
            self._to_end()
        else:
            self.unseen += len(lines)
            if gone:
                self._scroll(max(round(self.scroll_y) - gone, 0))
        self.refresh()

    def mark(self, text: str) -> None:
        """Paint lines that contain a text (the engine's finding) as bad; an empty one unmarks."""
        wanted = shown(text).strip()
        if wanted != self._bad:
            self._bad = wanted
            self.refresh()

    def clear(self) -> None:
        self._store.clear()
        self.unseen = 0
        self._match = None
        self._resize_view()
        self.refresh()

    def _resize_view(self) -> None:
        """Tell the scroll bar how many rows there are, without the layout that assigning would start.

        The scroll bar is always there and the widget's own size never changes, so nothing can move; a layout
        for each batch would repaint the whole screen.
        """
        size = Size(self.scrollable_content_region.width, self._store.rows)
        self.set_reactive(LogPane.virtual_size, size)
        self.vertical_scrollbar.window_virtual_size = size.height

    # --- moving

    @property
    def at_end(self) -> bool:
        return self.scroll_offset.y >= self.max_scroll_y - 1

    def _scroll(self, row: float) -> None:
        self.scroll_to(y=row, animate=False, force=True, immediate=True)

    def _to_end(self) -> None:
        self._scroll(self.max_scroll_y)
        self.unseen = 0

    def on_resize(self, event: events.Resize) -> None:
        self._lay_out(self._store.wrap_all)

    def _lay_out(self, wrap_all: bool) -> None:
        """Rows for the present width. A view that follows stays at the end, another one at its line."""
        top = self._store.at(round(self.scroll_offset.y))
        changed = self._store.lay_out(self.scrollable_content_region.width, wrap_all)
        self._resize_view()
        if self.follow:
            self._to_end()
        elif changed and top is not None:
            self._scroll(self._store.row_of(top[0] + self._store.dropped) or 0)
        self.refresh()

    def action_wrap(self) -> None:
        self._lay_out(not self._store.wrap_all)

    def action_follow(self) -> None:
        """Follow on jumps to the end; follow off leaves the view where it is."""
        self.follow = not (self.follow and self.at_end)
        if self.follow:
            self._to_end()

    def action_shift(self, by: int) -> None:
        """Look further right along lines that are cut."""
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
        row = self._store.row_of(number)
        if row is None:
            return False
        self._match = number
        self.follow = False
        self._scroll(max(row - self.size.height // 3, 0))
        self.refresh()
        return True

    def go_to_text(self, text: str) -> bool:
        """Show the first held line that contains a text; False when none does."""
        wanted = shown(text).strip()
        for index, line in enumerate(self._store.lines):
            if wanted and wanted in shown(line):
                return self.go_to_line(index + self._store.dropped)
        return False

    # --- searching

    def search(self, wanted: str) -> int:
        """Find a plain text, ignoring case; shows the last match and returns how many lines match."""
        self._wanted = wanted.lower()
        self._match = None
        count = self._store.count(self._wanted) if self._wanted else 0
        if count:
            self._seek(self._store.dropped + len(self._store.lines) - 1, -1)
        self.refresh()
        return count

    def action_next_match(self, by: int) -> None:
        if self._wanted:
            end = self._store.dropped + len(self._store.lines)
            self._seek((self._match if self._match is not None else end) + by, by)

    def _seek(self, start: int, by: int) -> None:
        found = self._store.find(self._wanted, start, by)
        if found is not None:
            self.go_to_line(found)

    # --- drawing

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        place = self._store.at(y + round(self.scroll_offset.y))
        if place is None:
            return self.paint([], width)
        index, part = place
        line = shown(self._store.lines[index])
        role = "bad" if self._bad and self._bad in line else ""
        if self._match == index + self._store.dropped and not self._wanted:
            role = "match"
        strip = Strip([Segment(text, self.role_style(r)) for text, r in self._marked(line, role) if text])
        offset = part * width + self._shift
        if offset:
            strip = strip.crop(offset, offset + width)
        return strip.adjust_cell_length(width, self.rich_style).simplify()

    def _marked(self, line: str, role: str) -> Line:
        """The line with what was searched for marked."""
        if not self._wanted or self._wanted not in (lower := line.lower()) or len(lower) != len(line):
            return [(line, role)]
        parts: list[tuple[str, str]] = []
        start = 0
        while (found := lower.find(self._wanted, start)) >= 0:
            stop = found + len(self._wanted)
            parts += [(line[start:found], role), (line[found:stop], "match")]
            start = stop
        return [*parts, (line[start:], role)]
