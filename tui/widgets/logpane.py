"""Owns the view of a log: lines are styled only when they are on screen, and it stays at the end only while there.

Lines arrive in batches from whoever follows the file; `logstore` holds them, `logfind` finds among them.
"""

from __future__ import annotations

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

from gpt_tune.logs.lines import shown
from tui.widgets.logfilter import Filtering
from tui.widgets.logfind import Finder
from tui.widgets.logline import marked, painted
from tui.widgets.logstore import MAX_CHARACTERS, MAX_LINES, Entry, LogStore, entry_of
from tui.widgets.paint import Painted


class LogPane(Filtering, Painted, ScrollView, can_focus=True):
    """The log. `follow` is on while the view stands at the end."""

    DEFAULT_CSS = """
    LogPane { height: 1fr; background: transparent; scrollbar-size: 1 1; overflow-y: scroll; overflow-x: hidden; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "Follow", tooltip="Go to the end and stay there"),
        Binding("n", "next_match(1)", "Next", tooltip="Next match"),
        Binding("N", "next_match(-1)", "Previous", show=False, tooltip="Previous match"),
        Binding("d", "fold", "Fold", show=False, tooltip="Show repeated lines once, or each of them"),
        Binding("z", "wrap", "Wrap", show=False, tooltip="Wrap rows of figures too, or not"),
        Binding("left", "shift(-16)", "Left", show=False),
        Binding("right", "shift(16)", "Right", show=False),
    ]

    follow: reactive[bool] = reactive(True)
    unseen: reactive[int] = reactive(0)

    class Moved(Message):
        """What the title says of the view has changed."""

    class WantsOlder(Message):
        """The user looks for lines above the first one."""

    def __init__(self, *, max_lines: int = MAX_LINES, id: str | None = None) -> None:
        super().__init__(id=id)
        self.store = LogStore(max_lines)
        self.finder = Finder()
        self.still = False
        self._bad = ""
        self._shift = self._gone = 0

    # --- content

    def add(self, lines: Sequence[Entry | str], judged_by: str = "") -> None:
        """Append a batch. judged_by: the text of the filter whose answers the entries carry."""
        if not lines:
            return
        entries = [line if isinstance(line, Entry) else entry_of(line) for line in lines]
        if judged_by != self.filter_text:
            for entry in entries:
                entry.wanted = self.wants(entry.facts)
        at_end = self.at_end
        gone = self.store.add(entries)
        self.finder.more(self.store)
        if self.still:
            if not self.follow:
                self.set_reactive(LogPane.unseen, self.unseen + sum(entry.wanted for entry in entries))
                self._gone += gone
            return
        self._resize_view()
        if self.follow and at_end:
            self._to_end()
        else:
            self.unseen += sum(entry.wanted for entry in entries)
            if gone:
                self._scroll(max(round(self.scroll_y) - gone, 0))
        self.refresh()

    def hold_still(self, on: bool) -> None:
        """Take lines without drawing them; off: draw what has come meanwhile."""
        self.still = on
        if on:
            self._gone = 0  # counts rows that leave at the top meanwhile
            return
        self._resize_view()
        if self.follow:
            self._to_end()
        else:
            self._scroll(max(round(self.scroll_y) - self._gone, 0))
        self.refresh()
        self.post_message(self.Moved())

    def add_older(self, entries: Sequence[Entry]) -> bool:
        """Lines before the oldest one; what is read stays where it is. False when not all have room."""
        for entry in entries:
            entry.wanted = self.wants(entry.facts)
        before = self.store.height
        fitted = self.store.prepend(entries)
        self._changed()
        self._scroll(round(self.scroll_y) + self.store.height - before)
        return fitted

    def mark(self, text: str) -> None:
        """Paint lines that contain a text (the engine's finding) as bad; an empty one unmarks."""
        wanted = shown(text).strip()
        if wanted != self._bad:
            self._bad = wanted
            self.refresh()

    def clear(self) -> None:
        self.store.clear()
        self.unseen = 0
        self._changed()

    def _changed(self) -> None:
        """Other lines are shown than before."""
        self.finder.again(self.store)
        self._resize_view()
        self.refresh()
        self.post_message(self.Moved())

    def _resize_view(self) -> None:
        """Tell the scroll bar how many rows there are, without the layout that assigning would start.

        The scroll bar is always there and the widget's own size never changes, so nothing can move; a layout
        for each batch would repaint the whole screen.
        """
        size = Size(self.scrollable_content_region.width, self.store.height)
        self.set_reactive(LogPane.virtual_size, size)
        self.vertical_scrollbar.window_virtual_size = size.height

    # --- what is shown

    def action_fold(self) -> None:
        self._keep_place(lambda: self.store.fold(not self.store.folding))

    def action_wrap(self) -> None:
        self._keep_place(lambda: self.store.lay_out(self.store.width, not self.store.wrap_all))

    def on_resize(self, event: events.Resize) -> None:
        width = self.scrollable_content_region.width
        self._keep_place(lambda: self.store.lay_out(width, self.store.wrap_all))

    def _keep_place(self, change: Callable[[], object]) -> None:
        """Change what is shown. A view that follows stays at the end, another one at its line."""
        top = self.store.at(round(self.scroll_offset.y))
        change()
        self._changed()
        if self.follow:
            self._to_end()
        elif top is not None:
            self._scroll(self.store.near(top[0].number))

    # --- moving

    @property
    def at_end(self) -> bool:
        return self.scroll_offset.y >= self.max_scroll_y

    def _scroll(self, row: float) -> None:
        self.scroll_to(y=row, animate=False, force=True, immediate=True)

    def _to_end(self) -> None:
        self._scroll(self.max_scroll_y)
        self.unseen = 0

    def _move(self, by: int) -> None:
        """At once: a smooth movement would be overtaken by the next lines."""
        if by < 0 and self.scroll_offset.y <= 0:
            self.post_message(self.WantsOlder())
        self._scroll(min(max(round(self.scroll_y) + by, 0), self.max_scroll_y))

    def action_scroll_up(self) -> None:
        self._move(-1)

    def action_scroll_down(self) -> None:
        self._move(1)

    def action_page_up(self) -> None:
        self._move(-max(self.size.height - 1, 1))

    def action_page_down(self) -> None:
        self._move(max(self.size.height - 1, 1))

    def action_scroll_home(self) -> None:
        self._move(-max(round(self.scroll_y), 1))

    def action_scroll_end(self) -> None:
        self._move(self.store.height)

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
        """Show a line by its number; False when it is not held, or hidden."""
        row = self.store.row_of(number)
        if row is None:
            return False
        self.finder.current = number
        self.follow = False
        self._scroll(max(row - self.size.height // 3, 0))
        self.refresh()
        self.post_message(self.Moved())
        return True

    # --- finding

    def search(self, wanted: str) -> int:
        """Find a plain text, ignoring case; shows the last match and returns how many lines match."""
        self.finder.begin(wanted, self.store)
        self.action_next_match(-1)
        self.refresh_bindings()
        self.refresh()
        return len(self.finder.matches)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "next_match":
            return bool(self.finder.wanted)
        return super().check_action(action, parameters)

    def action_next_match(self, by: int) -> None:
        found = self.finder.step(by)
        if found is not None:
            self.go_to_line(found)

    def newest(self, level: str) -> int | None:
        """The number of the newest line of a level that is held."""
        held = self.store.held
        at = next((i for i in range(len(held) - 1, -1, -1) if held[i].facts.level == level), None)
        return None if at is None else self.store.numbers[at]

    def containing(self, text: str) -> int | None:
        """The number of the first line held that contains a text as it is shown."""
        wanted = shown(text).strip()
        if not wanted:
            return None
        word = max(wanted.split(), key=len)
        for number, entry in zip(self.store.numbers, self.store.held):
            if word in entry.text and wanted in shown(entry.text):
                return number
        return None

    # --- drawing

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.refresh()

    def visible_lines(self) -> list[str]:
        """The lines on screen, whole."""
        top = round(self.scroll_offset.y)
        return [entry.text for entry in self.store.shown_entries(top, top + self.size.height)]

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        place = self.store.at(y + round(self.scroll_offset.y))
        if place is None:
            return self.paint([], width)
        row, part = place
        entry = self.store.entry(row.number)
        if entry is None:
            return self.paint([], width)
        here = row.number == self.finder.current
        spans = painted(entry, row.words, self._bad, here and not self.finder.wanted)
        strip = Strip(
            [Segment(text, self.role_style(role)) for text, role in marked(spans, self.finder.wanted) if text]
        )
        offset = part * width + self._shift
        if offset:
            strip = strip.crop(offset, offset + width)
        return strip.adjust_cell_length(width, self.role_style("")).simplify()
