"""Owns a one-line choice: the arrow keys, typing or the space bar change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from tui.widgets.paint import Painted, fit

if TYPE_CHECKING:
    from tui.screens.pick_dialog import PickDialog

# Up to so many, a first letter turns to the next that begins so; of more, typing is a search.
_FEW = 7


class Choice(Painted, can_focus=True):
    """`‹ cosine ›  2 of 4`: one of a few values, always exactly one."""

    DEFAULT_CSS = """
    Choice { height: 1; background: $surface; }
    Choice:focus { background: $block-cursor-background; color: $block-cursor-foreground; }
    Choice:ansi:focus { text-style: reverse; background: ansi_default; color: ansi_default; }
    Choice:nocolor:focus { text-style: reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "turn(-1)", "Previous", show=False),
        Binding("right", "turn(1)", "Change", key_display="←→"),
        Binding("space", "list", "List", key_display="Space", tooltip="Choose from a list"),
    ]

    at: reactive[int] = reactive(0, always_update=False)

    @dataclass
    class Changed(Message):
        choice: Choice
        value: str

        @property
        def control(self) -> Choice:
            return self.choice

    def __init__(self, options: Sequence[tuple[str, str, str]], value: str, *, id: str | None = None) -> None:
        """options: (value, label, a few words on it). A value that is none of them is kept and shown."""
        super().__init__(id=id)
        self._options = tuple(options)
        if value and all(known != value for known, _, _ in self._options):
            self._options = ((value, value, "not among the choices here"), *self._options)
        self.set_reactive(Choice.at, self._index(value))
        self._window: PickDialog | None = None

    @property
    def value(self) -> str:
        return self._options[self.at][0] if self.at >= 0 else ""

    def show_value(self, value: str) -> None:
        """Show a value without announcing a change."""
        with self.prevent(Choice.Changed):
            self.at = self._index(value)

    def _index(self, value: str) -> int:
        """Where a value stands; -1 when nothing has been chosen yet."""
        return next((i for i, (known, _, _) in enumerate(self._options) if known == value), -1)

    def action_turn(self, by: int) -> None:
        if self._options:
            start = self.at if self.at >= 0 else -1 if by > 0 else 0
            self.at = (start + by) % len(self._options)

    def action_list(self, typed: str = "") -> None:
        """All choices in a window with a line to filter them: for when there are many."""
        from tui.screens.pick_dialog import PickDialog

        self._window = PickDialog(self._options, self.value, typed)
        self.app.push_screen(self._window, self._listed)

    def _listed(self, value: str | None) -> None:
        self._window = None
        if value is not None:
            self.at = self._index(value)

    def watch_at(self) -> None:
        self.refresh()
        self.post_message(self.Changed(self, self.value))

    def on_key(self, event: events.Key) -> None:
        if self._window is not None and self._window.opening:
            event.stop()
            self._window.early(event)
            return
        letter = event.character or ""
        if not letter.isalnum():
            return
        count = len(self._options)
        if count > _FEW:
            event.stop()
            self.action_list(letter)
            return
        for step in range(1, count + 1):
            index = (self.at + step) % count
            if self._options[index][1].lower().startswith(letter.lower()):
                self.at = index
                event.stop()
                return

    def on_click(self, event: events.Click) -> None:
        self.action_turn(-1 if event.x < 2 else 1)

    def render_line(self, y: int) -> Strip:
        if y:
            return self.paint([], self.size.width)
        count = f" {self.at + 1} of {len(self._options)} "
        if self.at < 0:
            return self.paint([(" choose: Space lists them", "warn")], self.size.width)
        label = self._options[self.at][1] or "(none)"
        if len(self._options) == 1:
            return self.paint([(" " + label, "")], self.size.width)
        room = max(self.size.width - len(count) - 4, 4)
        over = "" if self.has_focus else "muted"
        return self.paint([("‹ ", ""), *fit(label, room), (" ›", ""), (count, over)], self.size.width)
